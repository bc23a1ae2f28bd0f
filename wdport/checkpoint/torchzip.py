"""An open file of ``torch.save`` goes in; its symbolic tree and the bytes of its storages come out.

The archive holds ``<root>/data.pkl``, one ``<root>/data/<key>`` per storage, and small records. Only the
directory, the headers, data.pkl and the byte order are read here.
"""

from __future__ import annotations

from typing import Final

from wdport.checkpoint.audit import audit
from wdport.checkpoint.contents import Contents
from wdport.checkpoint.faults import COPY_AGAIN, SAVE_AGAIN, STATE_DICT_ONLY, Fault
from wdport.checkpoint.opcodes import run
from wdport.checkpoint.source import Source
from wdport.checkpoint.span import Span
from wdport.checkpoint.tensor import StorageRef, TensorRef
from wdport.checkpoint.ziparchive import read_members
from wdport.limits import MAX_PICKLE_BYTES

_MAX_RECORD: Final = 64


def read_torch_zip(source: Source, *, crc_optional: bool = False) -> Contents:
    """Parse everything but the tensors' bytes.

    ``crc_optional`` accepts an archive written without CRCs, for a caller who has proved the file's
    identity in another way.
    """
    members = read_members(source)
    if crc_optional and all(span.crc == 0 for span in members.values()):
        for span in members.values():
            span.crc = None
    _check_byte_order(members)
    pickled = members["data.pkl"]
    if pickled.nbytes > MAX_PICKLE_BYTES:
        raise Fault(f"data.pkl of {pickled.nbytes} bytes (at most {MAX_PICKLE_BYTES})", STATE_DICT_ONLY)
    tree = run(pickled.read())
    audit(tree)
    return Contents("torch-zip", tree, _storages(tree, members), [source])


def _check_byte_order(members: dict[str, Span]) -> None:
    record = members.get("byteorder")  # absent before torch 2.1, which meant little
    if record is None:
        return
    order = record.read() if record.nbytes <= _MAX_RECORD else b""
    if order != b"little":
        fix = "save it again on a little-endian machine" if order == b"big" else COPY_AGAIN
        raise Fault(f"has byte order {order.decode('ascii', 'replace')!r}; only little is read", fix)


def _storages(tree: object, members: dict[str, Span]) -> dict[str, Span]:
    """The bytes of each storage that the tree refers to, whose declared size has to be the stored one."""
    spans: dict[str, Span] = {}
    for storage, name in _walk(tree):
        span = members.get(f"data/{storage.key}")
        if span is None:
            raise Fault(f"its storage data/{storage.key} is missing from the archive", SAVE_AGAIN, name)
        if span.nbytes != storage.nbytes:
            what = f"its storage data/{storage.key} has {span.nbytes} bytes, not {storage.nbytes} as declared"
            raise Fault(what, COPY_AGAIN, name)
        spans[storage.key] = span
    return spans


def _walk(tree: object) -> list[tuple[StorageRef, str]]:
    """Every storage in the tree with the dict key that it was found under; each container once."""
    found: list[tuple[StorageRef, str]] = []
    seen: set[int] = set()
    pending: list[tuple[object, str]] = [(tree, "")]
    while pending:
        node, name = pending.pop()
        if isinstance(node, TensorRef):
            found.append((node.storage, name))
        elif isinstance(node, StorageRef):
            found.append((node, name))
        elif isinstance(node, (dict, list, tuple)) and id(node) not in seen:
            seen.add(id(node))
            pairs = node.items() if isinstance(node, dict) else ((name, child) for child in node)
            pending.extend((child, str(key)) for key, child in pairs)
    return found
