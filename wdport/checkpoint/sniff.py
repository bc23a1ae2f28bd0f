"""Detect a file's format from its first bytes, or refuse it and say what it is."""

from __future__ import annotations

import codecs
from typing import Final

from wdport.checkpoint.faults import AS_TENSORS, COPY_AGAIN, NO_WEIGHTS, WEIGHTS_FILE, Fault
from wdport.checkpoint.foreign import refuse_file, refuse_pickle

HEAD: Final = 1024
"""Bytes that suffice to detect every format below (tar has its magic at 257)."""

_LEGACY_TORCH: Final = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""The pickled number 0x1950a86a20f9469cfc6c, which starts files of torch.save before 1.6."""

_TAR_MEMBERS: Final = (b"sys_info\0", b"pickle\0", b"tensors\0", b"storages\0")

_MAGICS: Final = (
    (b"\x1f\x8b", "gzip-compressed", "unpack it first: gunzip"),
    (b"\xfd7zXZ\x00", "xz-compressed", "unpack it first: unxz"),
    (b"BZh", "bzip2-compressed", "unpack it first: bunzip2"),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed", "unpack it first: unzstd"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "unpack it first"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file (Keras weights?), not a PyTorch checkpoint", "give the PyTorch checkpoint"),
    (b"GGUF", "a GGUF file", "give the PyTorch checkpoint that it was made from"),
    (b"\x93NUMPY", "a numpy array", AS_TENSORS),
    (b"PK\x05\x06", "an empty zip archive", COPY_AGAIN),
)

_TEXTS: Final = (
    ("version https://git-lfs", "a git-lfs pointer, not the file itself", "fetch the file: git lfs pull"),
    ("<!doctype html", "an HTML page", "download the file itself, not its web page"),
    ("<html", "an HTML page", "download the file itself, not its web page"),
)


def sniff(head: bytes, name: str) -> str:
    """Return ``"torch-zip"``, ``"torch-legacy"`` or ``"safetensors"``; anything else is a :class:`Fault`.

    ``head`` is the first :data:`HEAD` bytes, or the whole of a shorter file; ``name`` decides only
    if the bytes are ambiguous.
    """
    if not head:
        raise Fault("is empty", COPY_AGAIN)
    if head.startswith(b"PK\x03\x04"):
        refuse_file(name)
        return "torch-zip"
    if head.startswith(_LEGACY_TORCH):
        return "torch-legacy"
    _refuse_magic(head)
    _refuse_text(head)
    # After 8 bytes of length, a safetensors header is a JSON object.
    if head[8:9] == b"{" or name.endswith(".safetensors"):
        return "safetensors"
    refuse_file(name)
    _refuse_weak_magic(head)
    raise Fault("is neither a PyTorch nor a safetensors file", WEIGHTS_FILE)


def refuse_foreign_zip(members: set[str]) -> None:
    """Refuse a zip archive that is not a state_dict; ``members`` have no root folder."""
    for marks, kind, fix in _ZIPS:
        if any(member.startswith(marks) for member in members):
            raise Fault(f"is {kind}", fix)
    if "data.pkl" not in members:
        raise Fault("is a zip archive without data.pkl, not a PyTorch checkpoint", WEIGHTS_FILE)


def refuse_keras_or_numpy(members: list[str]) -> None:
    """Refuse the two kinds of zip archive that have no root folder."""
    if members and all(member.endswith(".npy") for member in members):
        raise Fault("is a numpy .npz archive, not a PyTorch checkpoint", AS_TENSORS)
    if "model.weights.h5" in members:
        raise Fault("is a Keras model, not a PyTorch checkpoint", "give the PyTorch checkpoint")
    if {"facts.json", "weights.bin"} <= set(members):
        raise Fault("is a program that wdport export wrote", "give the checkpoint or the converted model")


_ZIPS: Final = (
    (("archive_format", "models/"), "a torch.export archive (.pt2)", NO_WEIGHTS),
    (("model.json",), "a TorchScript archive of torch before 1.4", "load it with torch.jit.load and save a copy"),
)


def _refuse_magic(head: bytes) -> None:
    for magic, kind, fix in _MAGICS:
        if head.startswith(magic):
            raise Fault(f"is {kind}", fix)
    if head[257:262] == b"ustar" and head.startswith(_TAR_MEMBERS):
        fix = "load it with torch (weights_only=False, if you trust it) and save a copy"
        raise Fault("is a tar archive of torch before 0.1.10", fix)
    if head[257:262] == b"ustar":
        raise Fault("is a tar archive", "unpack it first: tar xf")


def _refuse_weak_magic(head: bytes) -> None:
    """Refuse formats whose magic is short enough to occur by chance; checked last."""
    if head[0] == 0x80 and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        refuse_pickle(head)
        raise Fault("is a bare pickle, not a PyTorch checkpoint", WEIGHTS_FILE)
    # An ONNX protobuf: field 1 (ir_version) as a small varint, then another length-delimited field.
    if head[:1] == b"\x08" and 0 < int.from_bytes(head[1:2]) < 32 and head[2:3] in (b"\x12", b"\x1a", b"\x22", b"\x3a"):
        raise Fault("is an ONNX model", "give the PyTorch checkpoint that it was exported from")


def _refuse_text(head: bytes) -> None:
    try:
        # Incremental: the head may end inside a character of several bytes.
        text = codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return
    if any(ord(character) < 32 and character not in "\t\n\r\f" for character in text):
        return
    start = text.lstrip("\ufeff \t\r\n").lower()
    for mark, kind, fix in _TEXTS:
        if start.startswith(mark):
            raise Fault(f"is {kind}", fix)
    raise Fault("is a text file, not a checkpoint", WEIGHTS_FILE)
