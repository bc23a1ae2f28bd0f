"""A ``.keras`` archive and the arrays in it: what Keras and we write is read, anything else is refused."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.files.hdf5_reference import tree
from wdport.checkpoint.faults import Fault
from wdport.checkpoint.source import Source
from wdport.files.keras_file import WEIGHTS, ArchiveWriter, KerasArchive, open_weights
from wdport.files.manifest_seal import MANIFEST

ARRAYS = {"layers/dense/vars/0": np.arange(6, dtype=np.float32).reshape(2, 3), "layers/dense/vars/1": np.ones(3, bool)}
RAW = tree(ARRAYS)


@contextmanager
def opened(path: Path) -> Iterator[KerasArchive]:
    source = Source(path)
    try:
        yield KerasArchive(source)
    finally:
        source.close()


def packed(members: list[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return buffer.getvalue()


def pack(path: Path, members: list[tuple[str, bytes]]) -> Path:
    path.write_bytes(packed(members))
    return path


def sound(path: Path, **extra: bytes) -> Path:
    named = {"metadata.json": b"{}", "config.json": b'{"a": 1}', WEIGHTS: RAW, **extra}
    return pack(path, list(named.items()))


def test_what_keras_writes(saved_models: list[Path], tmp_path: Path) -> None:
    for path in saved_models:
        held = path
        if path.suffix == ".keras":
            with zipfile.ZipFile(path) as archive, opened(path) as ours:
                assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}
                assert ours.config_json() == archive.read("config.json")
                assert ours.read(MANIFEST) is None
                held = Path(archive.extract(WEIGHTS, tmp_path))
        with open_weights(path) as file, h5py.File(held) as reference:
            for name in file.contents.datasets:
                found, wanted = file.read(name), np.asarray(reference[name][()])
                assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
                assert found.tobytes() == wanted.tobytes()
            with pytest.raises(KeyError):
                file.read("layers/none/vars/0")


def test_what_we_write(tmp_path: Path) -> None:
    path = tmp_path / "a.keras"
    writer = ArchiveWriter(path, {"a/kernel": (3,)}, '{"class_name": "Model"}')
    writer.write("a/kernel", np.arange(3, dtype=np.float32))
    writer.finish("a manifest")
    with opened(path) as ours:
        assert ours.read(MANIFEST) == b"a manifest"
        assert json.loads(ours.config_json()) == {"class_name": "Model"}
    with open_weights(path) as file:
        assert file.read("a/vars/0").tolist() == [0, 1, 2]


def test_assets_and_strangers(tmp_path: Path) -> None:
    with opened(sound(tmp_path / "a.keras", **{"assets/words.txt": b"a"})) as ours:
        assert ours.read(MANIFEST) is None
    strange = sound(tmp_path / "b.keras", **{"assets/words.txt": b"a", "notes.txt": b"b"})
    with pytest.raises(Fault, match="neither Keras nor wdport writes this member"), opened(strange):
        pass


def test_every_byte_counts(tmp_path: Path) -> None:
    """No bit of an archive can be turned unseen but those that nobody reads: dates, versions and attributes."""
    good = sound(tmp_path / "a.keras").read_bytes()
    path = tmp_path / "b.keras"
    survived = set()
    weights = range(good.index(RAW) + 1, good.index(RAW) + len(RAW) - 1)  # a CRC: some of them are enough
    for position in (at for at in range(len(good)) if at not in weights or not at % 61):
        raw = bytearray(good)
        raw[position] ^= 1 << position % 8
        path.write_bytes(raw)
        try:
            with opened(path) as ours, open_weights(path) as file:
                assert json.loads(ours.config_json()) == {"a": 1}
                for name, array in ARRAYS.items():
                    np.testing.assert_array_equal(file.read(name), array)
            survived.add(position)
        except Fault:
            pass
    assert survived
    assert survived <= unread_bytes(good)


def unread_bytes(good: bytes) -> set[int]:
    with zipfile.ZipFile(io.BytesIO(good)) as archive:
        headers = [info.header_offset for info in archive.infolist()]
    central = [at for at in range(len(good) - 3) if good[at : at + 4] == b"PK\x01\x02"]
    metadata = good.index(b"metadata.json") + len(b"metadata.json")
    unread = {start + at for start in headers for at in (4, 5, 10, 11, 12, 13)}
    unread |= {start + at for start in central for at in (4, 5, 6, 7, 12, 13, 14, 15, *range(36, 42))}
    return unread | {metadata, metadata + 1}  # the two bytes of metadata.json, which nobody asks for


@pytest.mark.parametrize("text", [b"[1]", b'{"a": 1, "a": 2}', b"{", b"\xff", b'{"a": ' * 5000, b""])
def test_bad_documents(text: bytes, tmp_path: Path) -> None:
    path = pack(tmp_path / "a.keras", [("config.json", text), (WEIGHTS, RAW)])
    with opened(path) as ours, pytest.raises(Fault):
        ours.config_json()


def test_documents_that_would_fill_memory(tmp_path: Path) -> None:
    texts = {
        b" " * (9 << 20): "too long",
        b'{"a": [' + b"[]," * 600_000 + b"[]]}": "brackets",
        b'{"a": ' + b"[" * 101 + b"]" * 101 + b"}": "deep",
    }
    for text, what in texts.items():
        path = pack(tmp_path / "a.keras", [("config.json", text), (WEIGHTS, RAW)])
        with opened(path) as ours, pytest.raises(Fault, match=what):
            ours.config_json()


def bad_archives() -> dict[str, bytes]:
    good = [("metadata.json", b"{}"), ("config.json", b"{}"), (WEIGHTS, RAW)]
    whole = packed(good)
    return {
        "compressed": packed(good, zipfile.ZIP_DEFLATED),
        "twice": packed([*good[:2], (WEIGHTS, tree({"x": np.ones(2)})), good[2]]),
        "path": packed([*good, ("../evil", b"")]),
        "absolute": packed([*good, ("/etc/evil", b"")]),
        "folder": packed([*good, ("assets/", b"")]),
        "no weights": packed(good[:2]),
        "no configuration": packed(good[2:]),
        "no zip": RAW,
        "before": b"junk" + whole,
        "after": whole + b"junk",
        "cut": whole[:-1],
        "weights are no HDF5": packed([*good[:2], (WEIGHTS, b"not HDF5 at all" * 99)]),
        "weights cut": packed([*good[:2], (WEIGHTS, RAW[:-1])]),
        "weights empty": packed([*good[:2], (WEIGHTS, b"")]),
        "no CRC": _without_crc(whole),
    }


def _without_crc(whole: bytes) -> bytes:
    """The weights' CRC set to zero in both headers."""
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        crc = archive.getinfo(WEIGHTS).CRC.to_bytes(4, "little")
    assert whole.count(crc) == 2
    return whole.replace(crc, bytes(4))


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("kind", list(range(15)))
def test_bad_archives(kind: int, tmp_path: Path) -> None:
    name, raw = list(bad_archives().items())[kind]
    path = tmp_path / f"{name}.keras"
    path.write_bytes(raw)
    with pytest.raises(Fault) as caught, open_weights(path):
        pass
    assert len(str(caught.value)) < 160


def test_a_bool_that_is_neither(tmp_path: Path) -> None:
    path = tmp_path / "a.weights.h5"
    raw = tree({"flags": np.array([True, False, True, True, True])})
    path.write_bytes(raw.replace(b"\1\0\1\1\1", b"\1\0\7\1\1"))
    with open_weights(path) as file, pytest.raises(Fault, match="other than 0 and 1"):
        file.read("flags")
