"""Equal to torch.load, leaf by leaf and bit by bit, on real files and on every kind of view."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wdport.checkpoint import Checkpoint, open_checkpoint
from wdport.checkpoint.tensor import StorageRef, TensorRef

from .forge import GOLDEN

GOLDENS = ["etth1-seq24-db2.ckpt", "exchange-seq24-qknorm.ckpt", "stocks-seq64-db4.pt", "ts2vec-stocks.pt"]


def golden(name: str) -> Path:
    path = GOLDEN / name
    if not path.exists():
        pytest.skip(f"the recordings are not there: ../shared/golden/{name}")
    return path


def same(array: np.ndarray[Any, Any], tensor: torch.Tensor) -> None:
    """Shape, dtype and every bit; a bfloat16 tensor is compared as float32."""
    expected = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).detach().contiguous().numpy()
    assert array.dtype == expected.dtype
    assert array.shape == expected.shape
    assert array.tobytes() == expected.tobytes()
    assert array.flags.c_contiguous
    assert array.flags.writeable
    assert array.dtype.isnative


def same_tree(checkpoint: Checkpoint, node: object, expected: object) -> int:
    """Compare the symbolic tree with torch's; the number of leaves compared."""
    if isinstance(node, TensorRef):
        assert isinstance(expected, torch.Tensor)
        same(checkpoint.read_ref(node), expected)
        return 1
    if isinstance(node, dict):
        assert isinstance(expected, dict)
        assert list(node) == list(expected)
        return sum(same_tree(checkpoint, node[key], expected[key]) for key in node)
    if isinstance(node, (list, tuple)):
        assert isinstance(expected, (list, tuple))
        return sum(same_tree(checkpoint, a, b) for a, b in zip(node, expected, strict=True))
    assert not isinstance(node, StorageRef)
    assert node == expected
    assert type(node) is type(expected)
    return 1


@pytest.mark.parametrize("name", GOLDENS)
def test_golden(name: str) -> None:
    path = golden(name)
    expected = torch.load(path, map_location="cpu", weights_only=True)
    with open_checkpoint(path) as checkpoint:
        assert same_tree(checkpoint, checkpoint.tree, expected) >= 49
        state = expected["state_dict"] if checkpoint.key else expected
        assert [info.stored_name for info in checkpoint.tensors.values()] == [
            key for key in state if key not in checkpoint.ignored
        ]
        for own, info in checkpoint.tensors.items():
            same(checkpoint.read(own), state[info.stored_name])
            assert info.shape == tuple(state[info.stored_name].shape)
            assert f"torch.{info.dtype}" == str(state[info.stored_name].dtype)
            assert info.nbytes == state[info.stored_name].nbytes


def roundtrip(folder: Path, state: dict[str, torch.Tensor], old: bool = False) -> None:
    """In the present format, or in that of torch before 1.6."""
    path = folder / "state.pt"
    torch.save(state, path, _use_new_zipfile_serialization=not old)
    expected = torch.load(path, weights_only=True)
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.format == ("torch-legacy" if old else "torch-zip")
        assert list(checkpoint.tensors) == list(expected)
        for name in expected:
            same(checkpoint.read(name), expected[name])


DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16]
DTYPES += [torch.int8, torch.uint8, torch.bool]


@pytest.mark.parametrize("old", [False, True])
def test_dtypes(old: bool, tmp_path: Path) -> None:
    for dtype in DTYPES:
        values = torch.tensor([[0.0, 1.0, 2.5], [100.0, 3.0, 7.0]]).to(dtype)
        roundtrip(tmp_path, {"w": values, "t": values.t(), "empty": values[:0], "scalar": values[1, 0].clone()}, old)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_bits_that_are_not_numbers(dtype: torch.dtype, tmp_path: Path) -> None:
    """NaN with its payload, infinities, negative zero and denormals pass bit by bit."""
    width = torch.int32 if dtype == torch.float32 else torch.int16
    bits = torch.randint(-(2**15), 2**15, (4096,), generator=torch.Generator().manual_seed(1)).to(width)
    bits = bits * 65537 if width is torch.int32 else bits
    path = tmp_path / "state.pt"
    torch.save({"w": bits.view(dtype)}, path)
    with open_checkpoint(path) as checkpoint:
        read = checkpoint.read("w")
    if dtype == torch.bfloat16:
        assert (read.view(np.uint32) == bits.numpy().view(np.uint16).astype(np.uint32) << 16).all()
    else:
        assert read.tobytes() == bits.numpy().tobytes()


@pytest.mark.parametrize("old", [False, True])
def test_views(old: bool, tmp_path: Path) -> None:
    base = torch.arange(120.0).reshape(4, 5, 6)
    roundtrip(
        tmp_path,
        {
            "whole": base,
            "transposed": base.transpose(0, 2),
            "row": base[2],
            "column": base[:, 3],
            "stepped": base[::2, 1::3, ::4],
            "permuted": base.permute(1, 2, 0)[2:4],
            "last": base[3, 4, 5],
            "none": base[4:, :, 2:],
            "one": base[:1].expand(1, 5, 6),
            "flat": base.view(-1)[7:19],
            "tied": base,
            "parameter": torch.nn.Parameter(base[0].t()),
        },
        old,
    )
    with open_checkpoint(tmp_path / "state.pt") as checkpoint:
        assert [len(names) for names in checkpoint.shared] == [12]


@pytest.mark.parametrize("old", [False, True])
def test_a_module_with_optimizer_and_options(old: bool, tmp_path: Path) -> None:
    """_metadata, optimizer state, dtypes and sizes as values, and a counter of zero dimensions."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(5, 3)).sum().backward()
    optimizer.step()
    options = {
        "dtype": torch.bfloat16,
        "size": torch.Size([1, 2]),
        "betas": (0.9, 0.95),
        "name": None,
        "big": -(10**30),
    }
    path = tmp_path / "state.pt"
    whole = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "options": options}
    torch.save(whole, path, _use_new_zipfile_serialization=not old)
    expected = torch.load(path, weights_only=True)
    with open_checkpoint(path) as checkpoint:
        assert isinstance(checkpoint.tree, dict)
        found = checkpoint.tree["options"]
        assert (found.pop("dtype").name, found.pop("size")) == ("torch.bfloat16", (1, 2))
        del expected["options"]["dtype"], expected["options"]["size"]
        assert same_tree(checkpoint, checkpoint.tree, expected) > 20
        assert isinstance(checkpoint.tree["model"], OrderedDict)


@st.composite
def strided(draw: st.DrawFn) -> tuple[int, tuple[int, ...], tuple[int, ...], int]:
    """A storage and a view inside it that repeats no more than it holds."""
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=4)))
    strides = tuple(draw(st.integers(0, 9)) for _ in shape)
    offset = draw(st.integers(0, 5))
    extent = 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    room = draw(st.integers(0, 5))
    return max(offset + extent, int(np.prod(shape)), 1) + room, shape, strides, offset


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    view=strided(), dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.uint8]), old=st.booleans()
)
def test_random_views(
    view: tuple[int, tuple[int, ...], tuple[int, ...], int], dtype: torch.dtype, old: bool, tmp_path: Path
) -> None:
    count, shape, strides, offset = view
    base = torch.arange(count).to(dtype)
    roundtrip(tmp_path, {"view": base.as_strided(shape, strides, offset), "base": base}, old)
