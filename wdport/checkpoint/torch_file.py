"""Read a file of ``torch.save`` or ``torch.jit.save``, zip or older: its tree and the places of its storages.

A zip archive holds ``<root>/data.pkl``, one ``<root>/data/<key>`` per storage, and small records. Only the directory,
the headers, data.pkl and the byte order are read here. A TorchScript archive also contains source code, below
``code/``, and constants of that code: neither is read, since ``state_dict()`` does not use them.

A file from before torch 1.6 has five consecutive pickles: a magic number, a protocol number, facts about the system,
the object, and the keys of the storages. The storages follow in the order of the keys, each a count in 8 bytes and as
many elements. The format has no checksums, so a flipped bit in a tensor cannot be seen.
"""

from __future__ import annotations

from typing import Final

from wdport.base.limits import MAX_PICKLE_BYTES
from wdport.checkpoint.faults import COPY_AGAIN, LOAD_AND_SAVE, Fault
from wdport.checkpoint.modules import is_script
from wdport.checkpoint.pickle_machine import Pickled, audit, run, run_whole
from wdport.checkpoint.pickle_reader import Exhausted
from wdport.checkpoint.source import Contents, Source, Span
from wdport.checkpoint.tensor import StorageRef, Storages, TensorRef
from wdport.checkpoint.zip_archive import read_members

_MAX_RECORD: Final = 64


def read_torch_zip(source: Source, *, crc_optional: bool = False) -> Contents:
    """Parse everything except the tensors' bytes.

    ``crc_optional`` accepts an archive written without CRCs, for a caller that has verified the file in
    another way.
    """
    members = read_members(source)
    if crc_optional and all(span.crc == 0 for span in members.values()):
        for span in members.values():
            # Only if no member has one: a single zero among other CRCs may be damage.
            span.crc = None
    _check_byte_order(members)
    data = members["data.pkl"]
    if data.nbytes > MAX_PICKLE_BYTES:
        raise Fault(f"data.pkl of {data.nbytes} bytes (at most {MAX_PICKLE_BYTES})", LOAD_AND_SAVE)
    pickled = run_whole(data.read())
    audit(pickled.tree)
    spans = _spans(pickled.storages, members, pickled.tree)
    return Contents("torchscript" if is_script(pickled.tree) else "torch-zip", pickled.tree, spans, [source])


def _check_byte_order(members: dict[str, Span]) -> None:
    record = members.get("byteorder")  # absent before torch 2.1, which meant little
    if record is None:
        return
    order = record.read() if record.nbytes <= _MAX_RECORD else b""
    if order != b"little":
        # Anything else than the two orders that torch writes is damage.
        fix = "save it again on a little-endian machine" if order == b"big" else COPY_AGAIN
        raise Fault(f"has byte order {order.decode('ascii', 'replace')!r}; only little is read", fix)


def _spans(storages: Storages, members: dict[str, Span], tree: object) -> dict[str, Span]:
    """Return the bytes of each storage that the pickle declares; the declared size must be the stored one."""
    spans: dict[str, Span] = {}
    for key, storage in storages.roots.items():
        span = members.get(f"data/{key}")
        if span is None:
            raise Fault(f"its storage data/{key} is missing from the archive", COPY_AGAIN, _user(tree, key))
        if span.nbytes != storage.nbytes:
            what = f"its storage data/{key} has {span.nbytes} bytes, not {storage.nbytes} as declared"
            raise Fault(what, COPY_AGAIN, _user(tree, key))
        spans[key] = span
    return spans


def _user(tree: object, storage_key: str) -> str:
    """Return the dict key of a tensor in that storage, for a message; each container is searched once."""
    visited: set[int] = set()
    pending: list[tuple[object, str]] = [(tree, "")]
    while pending:
        node, name = pending.pop()
        storage = node.storage if isinstance(node, TensorRef) else node
        if isinstance(storage, StorageRef) and storage.key == storage_key:
            return name
        if isinstance(node, (dict, list, tuple)) and id(node) not in visited:
            visited.add(id(node))
            # An element of a list or tuple goes by the name of the nearest dict key above it, which a user can find.
            pairs = node.items() if isinstance(node, dict) else ((name, child) for child in node)
            pending.extend((child, str(key)) for key, child in pairs)
    return ""


MAGIC: Final = 0x1950A86A20F9469CFC6C
PROTOCOL: Final = 1001

_WINDOWS: Final = (1 << 16, 1 << 21)
"""Bytes that are read first: the length of a pickle is unknown until its end is found."""

_FEW: Final = 1000
"""Opcodes of the three small pickles; torch writes about 20."""

_COUNT_BYTES: Final = 8


def read_legacy(source: Source) -> Contents:
    """Parse the pickles and the counts; no tensor's bytes are read."""
    # The small pickles have their own limit, so that a file cannot spend the whole allowance several times.
    magic, position = _pickle(source, 0, max_opcodes=_FEW)
    protocol, position = _pickle(source, position, max_opcodes=_FEW)
    if magic.tree != MAGIC or protocol.tree != PROTOCOL:
        raise Fault("is not of the one legacy protocol that torch wrote", LOAD_AND_SAVE)
    system, position = _pickle(source, position, max_opcodes=_FEW)
    _check_system(system.tree)
    content, position = _pickle(source, position)
    audit(content.tree)
    keys, position = _pickle(source, position)
    return Contents(
        "torch-legacy", content.tree, _legacy_spans(source, content.storages, keys.tree, position), [source]
    )


def _pickle(source: Source, start: int, max_opcodes: int | None = None) -> tuple[Pickled, int]:
    """Return the pickle at ``start`` and its end, read in windows that grow until the end is found."""
    left = min(source.size - start, MAX_PICKLE_BYTES)
    for window in (*(size for size in _WINDOWS if size < left), left):
        try:
            pickled = run(source.read(start, window), legacy=True, max_opcodes=max_opcodes)
        except Exhausted as fault:
            # The limit on a pickle cut the window, not the end of the file: more bytes would not be read anyway.
            if window == left < source.size - start:
                raise Fault(f"a pickle of more than {MAX_PICKLE_BYTES} bytes", LOAD_AND_SAVE) from None
            if window == left:
                raise fault
            continue
        return pickled, start + pickled.end
    raise AssertionError  # the last window is ``left``


def _check_system(system: object) -> None:
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        fix = "load it with torch on the machine that wrote it, and save it again"
        raise Fault("was written on a machine that is not little-endian", fix)


def _legacy_spans(source: Source, storages: Storages, keys: object, position: int) -> dict[str, Span]:
    """Return the bytes of each storage; every declared one is stored once, and they fill the file to its end."""
    if not isinstance(keys, list):
        raise Fault("its storage keys are not a list")
    spans: dict[str, Span] = {}
    for key in keys:
        root = storages.roots.get(key) if isinstance(key, str) else None
        if root is None or key in spans:
            raise Fault("its list of storages does not match those that its tensors use")
        # torch reads this count as a signed number, so a negative one must not become a large one here.
        count = int.from_bytes(source.read(position, _COUNT_BYTES), "little", signed=True)
        position += _COUNT_BYTES
        if count != root.numel:
            raise Fault(f"its storage {key} has {count} elements, not {root.numel} as declared")
        if root.nbytes > source.size - position:
            raise Fault(f"is cut short: its storage {key} needs {root.nbytes} bytes of {source.size - position}")
        spans[key] = Span(source, position, root.nbytes, None, f"storage {key}")
        position += root.nbytes
    missing = next((key for key in storages.roots if key not in spans), None)
    if missing is not None:
        raise Fault(f"its storage {missing} is missing")
    if position != source.size:
        raise Fault(f"{source.size - position} bytes follow the last storage")
    return spans
