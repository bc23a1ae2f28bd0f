"""The seal of archives: a member that is replaced, with its CRC, is found; archives of others have none."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from wdport.checkpoint.faults import Fault
from wdport.files.manifest_seal import sealed
from wdport.files.outputs import writable
from wdport.files.sealed_archive import sealed_archive
from wdport.files.zip_seal import FORMAT, SEAL
from wdport.models.interface import Array
from wdport.uses.data.arrays import opened_npz

ARRAYS = {"a": np.arange(12.0).reshape(3, 4), "b": np.arange(5, dtype=np.int32)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with sealed_archive(writable(tmp_path / "a.npz")) as file:
        np.savez(file, **ARRAYS)  # type: ignore[arg-type]
    return tmp_path / "a.npz"


def read(path: Path) -> dict[str, Array]:
    with opened_npz(path) as arrays:
        return {name: arrays[name] for name in arrays}


def rewritten(path: Path, member: str, data: bytes, comment: bytes | None = None) -> None:
    """With another member, and CRC, in the place of this one."""
    with zipfile.ZipFile(path) as archive:
        members = {each.filename: archive.read(each) for each in archive.infolist()}
        kept = archive.comment
    with zipfile.ZipFile(path, "w") as archive:
        for name, own in (members | {member: data}).items():
            archive.writestr(name, own)
        archive.comment = kept if comment is None else comment


def npy(array: Array) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def test_numpy_reads_the_arrays_alone(path: Path) -> None:
    with np.load(path) as arrays:
        assert set(arrays.files) == set(ARRAYS)
    assert all(np.array_equal(array, ARRAYS[name]) for name, array in read(path).items())


def test_an_array_that_was_replaced_is_found(path: Path) -> None:
    rewritten(path, "b.npy", npy(ARRAYS["b"] + 1))
    with opened_npz(path) as arrays:
        assert np.array_equal(arrays["a"], ARRAYS["a"])
        with pytest.raises(Fault, match="is not what wdport wrote"):
            arrays["b"]


def test_arrays_that_came_or_went_are_found(path: Path) -> None:
    rewritten(path, "c.npy", npy(ARRAYS["b"]))
    with pytest.raises(Fault, match="its members are not those that wdport wrote"):
        read(path)


@pytest.mark.parametrize("facts", [{"format": FORMAT + 1, "members": {}}, {"format": FORMAT, "members": []}])
def test_a_seal_of_another_version_is_found(path: Path, facts: dict[str, object]) -> None:
    rewritten(path, "b.npy", npy(ARRAYS["b"]), sealed(facts).encode())
    with pytest.raises(Fault, match="its seal is of another version of wdport"):
        read(path)


def test_a_damaged_seal_is_found(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        seal, data = archive.comment, archive.read("a.npy")
    for at in range(len(SEAL), len(seal), 5):
        rewritten(path, "a.npy", data, seal[:at] + bytes([seal[at] ^ 1]) + seal[at + 1 :])
        with pytest.raises(Fault, match="its seal is damaged"):
            read(path)


def test_an_archive_without_a_seal_is_read(path: Path) -> None:
    for comment in (b"", b"made by another program", b"{}"):
        rewritten(path, "b.npy", npy(ARRAYS["b"] + 1), comment)
        assert np.array_equal(read(path)["b"], ARRAYS["b"] + 1)
