"""Folders of ``torch.distributed.checkpoint``: whole tensors and those divided among files, and what is refused."""

from __future__ import annotations

import io
import pickle
import warnings
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed import checkpoint as distributed
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from tests.checkpoint import forge
from wdport.checkpoint import open_checkpoint

from .bad import refuse

torch.manual_seed(0)
ROWS, COLUMNS, TILES, FLAT = torch.randn(5, 6), torch.randn(4, 7).bfloat16(), torch.randn(5, 4, 3), torch.arange(7)
TENSORS: dict[str, tuple[torch.Tensor, list[list[int]]]] = {
    "rows": (ROWS, [[0, 3], [0]]),
    "columns": (COLUMNS, [[0], [0, 4, 6]]),
    "tiles": (TILES, [[0, 2], [0, 1, 3], [0, 2]]),
    "flat": (FLAT, [[0, 3, 6]]),
    "scalar": (torch.tensor(2.5), []),
    "empty": (torch.zeros(0, 3), [[0], [0]]),
}
"""Tensors, and where their pieces begin along every axis."""


def chunks(tensor: torch.Tensor, starts: list[list[int]]) -> dict[tuple[int, ...], torch.Tensor]:
    pieces = {}
    for offsets in product(*starts):
        ends = [next((s for s in [*axis, size] if s > at), size)
                for axis, at, size in zip(starts, offsets, tensor.shape, strict=True)]  # fmt: skip
        pieces[offsets] = tensor[tuple(slice(a, b) for a, b in zip(offsets, ends, strict=True))].clone()
    return pieces


def write(
    folder: Path, tensors: Mapping[str, Any] = TENSORS, change: Callable[[Metadata], object] | None = None
) -> Path:
    """A folder with two files, as two processes write it."""
    files, described, stored = [io.BytesIO(), io.BytesIO()], dict[str, Any](), dict[Any, Any]()
    for name, (tensor, starts) in tensors.items():
        listed = []
        for number, (offsets, piece) in enumerate(chunks(tensor, starts).items()):
            listed.append(ChunkStorageMetadata(torch.Size(offsets), piece.shape))
            start = files[number % 2].tell()
            torch.save(piece, files[number % 2])
            place = _StorageInfo(f"__{number % 2}_0.distcp", start, files[number % 2].tell() - start)
            stored[MetadataIndex(f"net.{name}", torch.Size(offsets), number)] = place
        described[f"net.{name}"] = TensorStorageMetadata(TensorProperties(dtype=tensor.dtype), tensor.shape, listed)
    described["epoch"] = BytesStorageMetadata()
    metadata = Metadata(described, {name: tuple(name.split(".")) for name in described}, stored)
    if change is not None:
        change(metadata)
    folder.mkdir(exist_ok=True)
    (folder / ".metadata").write_bytes(pickle.dumps(metadata, protocol=4))
    for number, file in enumerate(files):
        (folder / f"__{number}_0.distcp").write_bytes(file.getvalue())
    return folder


def test_divided_tensors(tmp_path: Path) -> None:
    with open_checkpoint(write(tmp_path / "a")) as checkpoint:
        assert (checkpoint.format, checkpoint.key, checkpoint.other_keys) == ("torch-distributed", "net", ("epoch",))
        assert list(checkpoint.tensors) == list(TENSORS)
        for name, (tensor, _) in TENSORS.items():
            wide = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
            assert np.array_equal(checkpoint.read(name), wide.numpy()), name
            raw = tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
            for start in range(tensor.numel()):
                run = bytearray(len(raw) - start * tensor.itemsize)
                checkpoint.read_run(name, start, memoryview(run))
                assert run == raw[start * tensor.itemsize :], (name, start)
        with checkpoint.hashed() as digest:
            for name in reversed(list(checkpoint.tensors)):
                checkpoint.read(name)
        assert digest.hexdigest() == checkpoint.file_sha256()
        assert [path.name for path in checkpoint.files.values()] == [".metadata", "__0_0.distcp", "__1_0.distcp"]


def test_what_torch_writes(tmp_path: Path) -> None:
    content = {"model": {"a.w": ROWS, "b": COLUMNS, "turned": ROWS.T}, "epoch": 3, "optim": {"a.w": {"m": ROWS}}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        distributed.save(content, checkpoint_id=str(tmp_path / "a"), no_dist=True)
        distributed.save(content["model"], checkpoint_id=str(tmp_path / "b"), no_dist=True)
    for folder, key in (("a", "model"), ("b", None)):
        with open_checkpoint(tmp_path / folder) as checkpoint:
            assert (checkpoint.key, set(checkpoint.tensors)) == (key, {"a.w", "b", "turned"})
            assert np.array_equal(checkpoint.read("a.w"), ROWS.numpy())
            assert np.array_equal(checkpoint.read("turned"), ROWS.T.numpy())
            assert np.array_equal(checkpoint.read("b"), COLUMNS.float().numpy())


Change = Callable[[Metadata], object]


def entry(metadata: Metadata, name: str = "net.rows") -> Any:
    return metadata.state_dict_metadata[name]


def moved(**changes: object) -> Callable[[Metadata], object]:
    """A change of the place of one piece."""

    def change(metadata: Metadata) -> None:
        index, place = next(iter(metadata.storage_data.items()))
        metadata.storage_data[index] = _StorageInfo(**{**vars(place), **changes})

    return change


def resized(first: Callable[[Metadata], Any], *size: int) -> Callable[[Metadata], object]:
    """A change of the size that the metadata states of something."""
    return lambda metadata: setattr(first(metadata), "sizes", torch.Size(size))


INSIDE = ChunkStorageMetadata(torch.Size([1, 0]), torch.Size([2, 6]))
BAD: dict[str, tuple[Change, str]] = {
    "piece missing": (lambda m: m.storage_data.pop(next(iter(m.storage_data))), "rows: has no piece that begins at"),
    "hole": (lambda m: entry(m).chunks.pop(), "net.rows: has pieces that leave holes or overlap"),
    "short piece": (resized(lambda m: entry(m).chunks[0], 2, 6), "leave holes or overlap"),
    "another size than the file": (lambda m: [resized(lambda m: entry(m).chunks[1], 1, 6)(m),
                                              setattr(entry(m), "size", torch.Size([4, 6]))],
                                   "its piece is not a tensor of the size [1, 6]"),
    "overlap": (lambda m: entry(m).chunks.append(INSIDE), "leave holes or overlap"),
    "another size": (lambda m: setattr(entry(m), "size", torch.Size([6, 6])), "leave holes or overlap"),
    "another rank": (lambda m: setattr(entry(m), "size", torch.Size([30])), "number of axes"),
    "negative": (lambda m: setattr(entry(m), "size", (-1, 6)), "natural numbers"),
    "no tuple": (lambda m: setattr(entry(m), "size", [5, 6]), "has a size"),
    "rank": (lambda m: setattr(entry(m), "size", (1,) * 99), "at most 32 numbers"),
    "no chunks": (lambda m: setattr(entry(m), "chunks", None), "no list of pieces"),
    "beyond the file": (moved(length=1 << 40), "overlap in the file"),
    "offset beyond": (moved(offset=1 << 40), "ends at byte"),
    "negative offset": (moved(offset=-1), "not described"),
    "overlapping ranges": (moved(offset=3), "overlap in the file"),
    "cut": (moved(length=99), "rows: "),
    "outside": (moved(relative_path="../a.pt"), "lies outside the folder"),
    "absolute": (moved(relative_path="/etc/passwd"), "lies outside the folder"),
    "missing file": (moved(relative_path="__9_0.distcp"), "__9_0.distcp: no such file"),
    "compressed": (moved(transform_descriptors=["zstd"]), "is compressed"),
    "no places": (lambda m: setattr(m, "storage_data", None), "no storage_data"),
    "no tensors": (lambda m: m.state_dict_metadata.clear(), "has no state_dict"),
    "names": (lambda m: m.state_dict_metadata.update({3: entry(m)}), "name is not text"),
    "paths": (lambda m: m.planner_data.update({"net.columns": ("net", "rows")}), "two entries have this name"),
    "below a tensor": (lambda m: m.planner_data.update({"net.columns": ("net", "rows", "a")}), "below a tensor"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_bad_metadata(kind: str, tmp_path: Path) -> None:
    change, what = BAD[kind]
    refuse(write(tmp_path / "a", change=change), what)


LIMITS: dict[str, tuple[str, int, Change, str]] = {
    "tensors": ("MAX_TENSORS", 6, lambda m: None, "more than 6 tensors or pieces"),
    "pieces": ("MAX_TENSORS", 22, lambda m: setattr(entry(m), "chunks", entry(m).chunks * 2), "more than 22 pieces"),
    "files": ("MAX_SHARDS", 1, lambda m: None, "has more than 1 files"),
    "bytes": ("MAX_PICKLE_BYTES", 99, lambda m: None, "at most 99 are read"),
}


@pytest.mark.parametrize("kind", LIMITS)
def test_limits(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit, value, change, what = LIMITS[kind]
    monkeypatch.setattr(f"wdport.checkpoint.distributed.{limit}", value)
    refuse(write(tmp_path / "a", change=change), what)


def test_pieces_of_several_dtypes(tmp_path: Path) -> None:
    def exchanged(metadata: Metadata) -> None:
        stored = metadata.storage_data
        one, other = ([index for index in stored if index.fqn == f"net.{name}"][1] for name in "ab")
        stored[one], stored[other] = stored[other], stored[one]

    tensors = {"a": (ROWS, [[0, 3], [0]]), "b": (ROWS.double(), [[0, 3], [0]])}
    refuse(write(tmp_path / "a", tensors, exchanged), "a: has pieces of several dtypes")


def test_bad_pieces(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", {"w": (ROWS, [[0], [0]])})
    file = folder / "__0_0.distcp"
    data = file.read_bytes()
    at = data.find(ROWS.numpy().tobytes())
    file.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    refuse(folder, "the bytes do not match their CRC")
    file.write_bytes(data[:-1])
    refuse(folder, "ends at byte")
    # `clone` keeps the order in memory; pieces in another order than C's would have to be put together whole.
    refuse(write(tmp_path / "b", {"w": (ROWS.T, [[0, 3], [0]])}), "w: has pieces that are views of other values")


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x02ls\x85R.",
        b"\x80\x04\x95" + bytes(8) + b"}.",
        b"\x80\x04K\x01K\x02\x93.",
        b"\x80\x02}.",
        b"\x80\x04}",
        b"\x80\x04}.x",
        b"",
        b"\x80\x04]\x94h\x00a.",
        forge.GOOD_PICKLE,
    ],
)
def test_hostile_pickles(data: bytes, tmp_path: Path) -> None:
    (tmp_path / ".metadata").write_bytes(data)
    (tmp_path / "__0_0.distcp").write_bytes(b"")
    refuse(tmp_path, "")
