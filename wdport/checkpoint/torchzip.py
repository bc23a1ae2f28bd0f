"""Read an open zip file of ``torch.save`` or ``torch.jit.save``: its tree and the places of its storages.

The archive holds ``<root>/data.pkl``, one ``<root>/data/<key>`` per storage, and small records. Only the directory,
the headers, data.pkl and the byte order are read here. A TorchScript archive also contains source code, below
``code/``, and constants of that code: neither is read, since ``state_dict()`` does not use them.
"""

from __future__ import annotations

from typing import Final

from wdport.checkpoint.audit import audit
from wdport.checkpoint.faults import COPY_AGAIN, LOAD_AND_SAVE, Fault
from wdport.checkpoint.modules import is_script
from wdport.checkpoint.opcodes import run_whole
from wdport.checkpoint.source import Contents, Source, Span
from wdport.checkpoint.storages import Storages
from wdport.checkpoint.tensor import StorageRef, TensorRef
from wdport.checkpoint.ziparchive import read_members
from wdport.limits import MAX_PICKLE_BYTES

_MAX_RECORD: Final = 64


def read_torch_zip(source: Source, *, crc_optional: bool = False) -> Contents:
    """Parse everything except the tensors' bytes.

    ``crc_optional`` accepts an archive written without CRCs, for a caller that has verified the file in
    another way.
    """
    members = read_members(source)
    if crc_optional and all(span.crc == 0 for span in members.values()):
        for span in members.values():
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
            pairs = node.items() if isinstance(node, dict) else ((name, child) for child in node)
            pending.extend((child, str(key)) for key, child in pairs)
    return ""
