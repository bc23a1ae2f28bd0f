"""Conversions in bounded memory: PyTorch's own rounding bit for bit, whatever the budget, format and source."""

from __future__ import annotations

import hashlib
import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from huggingface_hub import load_state_dict_from_file
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import wdport
from tests.command import Cli
from wdport.base.errors import MachineError, MisfitError, UsageError, WdportError
from wdport.conversion.buffer_steps import Budget
from wdport.conversion.convert import Conversion
from wdport.conversion.load import open_converted, sound_variables
from wdport.families.registry import own_model
from wdport.files.inputs import sha256_at
from wdport.files.safetensors_writer import ShardedWriter

from .streamed_model import sharded, table, tensors

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def expected(state: dict[str, torch.Tensor], dtype: str) -> dict[str, torch.Tensor]:
    """By hand, with PyTorch's own arithmetic and rounding."""
    kept, single = DTYPES[dtype], {name: value.float() for name, value in state.items()}
    made = {
        "embed/embeddings": single["embed.weight"],
        "norm/gamma": single["norm.weight"],
        "norm/beta": single["norm.bias"],
        "up/kernel": single["up.weight"].T,
        "down/kernel": single["down.weight"].T,
        "down/bias": single["down.bias"],
        "held/swap": single["swap"].permute(0, 2, 1),
        "held/scale": single["scale"],
        "held/none": single["none"].T,
        "conv/kernel": single["conv.weight"].permute(2, 1, 0),
        "qk/kernel": torch.cat([single["q.weight"], single["k.weight"]]).T,
        "qk/bias": (state["b0"].double() + state["b1"].double()).float(),
    }
    return {name: value.to(kept).contiguous() for name, value in made.items()}


def bits(value: torch.Tensor) -> bytes:
    return value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def in_folder(folder: Path) -> dict[str, torch.Tensor]:
    """As transformers reads it: the index, then the shards that it names."""
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    found: dict[str, torch.Tensor] = {}
    for shard in sorted(set(index["weight_map"].values())):
        with safe_open(folder / shard, "pt") as file:
            assert file.metadata()["format"] == "pt"
        held = load_state_dict_from_file(folder / shard)
        assert {name for name, place in index["weight_map"].items() if place == shard} == set(held)
        found |= held
    assert index["metadata"]["total_size"] == sum(value.nbytes for value in found.values())
    return found


def convert(tmp_path: Path, source: Path, name: str = "out/", **options: Any) -> Conversion:
    return wdport.convert(source, f"{tmp_path}/{name}", mapping=table(tmp_path), **options)


STORED = ("float32", "bfloat16", "float16", "float64")
BUDGETED = [
    *((stored, dtype, 11200 if stored == "float64" else 7700) for stored in STORED for dtype in DTYPES),
    *((stored, dtype, memory) for memory in (None, 30000)
      for stored, dtype in (("float64", "float16"), ("bfloat16", "float32"), ("float32", "bfloat16"))),
]  # fmt: skip
"""The smallest budgets hold a row of 300 values; what a budget divides is rounded as the whole is."""


@pytest.mark.parametrize(("stored", "dtype", "memory"), BUDGETED)
def test_every_dtype_and_budget_gives_pytorchs_bits(
    tmp_path: Path, stored: str, dtype: str, memory: int | None
) -> None:
    state = tensors(getattr(torch, stored))
    made = convert(tmp_path, sharded(tmp_path / "in", state), dtype=dtype, max_memory=memory, max_shard_size=600,
                   cast=True)  # fmt: skip
    found = in_folder(made.output)
    wanted = expected(state, dtype)
    assert found.keys() == wanted.keys()
    assert [name for name in wanted if bits(found[name]) != bits(wanted[name])] == []
    assert len(list(made.output.glob("model-*.safetensors"))) > 2


@pytest.mark.parametrize("safe", [True, False])
def test_all_hashes_are_those_of_the_files(tmp_path: Path, safe: bool) -> None:
    source = sharded(tmp_path / "in", tensors(), safe)
    index, *shards = sorted(source.iterdir(), key=lambda path: (path.suffix != ".json", path.name))
    made = convert(tmp_path, source, dtype="bfloat16", max_shard_size=600)
    whole = hashlib.sha256(b"".join(path.read_bytes() for path in (index, *shards))).hexdigest()
    assert made.manifest["source"]["sha256"] == whole
    for file in made.manifest["output"]["files"]:
        assert hashlib.sha256((made.output / file["name"]).read_bytes()).hexdigest() == file["sha256"]
    assert made.manifest["output"]["sha256"] == sha256_at(made.output)
    assert bits(in_folder(made.output)["up/kernel"]) == bits(expected(tensors(), "bfloat16")["up/kernel"])


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("out/", "float16"), ("out.safetensors", "float16"), ("out.npz", "float16"), ("out.npz", "float32")],
)
def test_a_model_loads_from_every_format(tmp_path: Path, name: str, dtype: str) -> None:
    made = convert(tmp_path, sharded(tmp_path / "in", tensors()), name, dtype=dtype, max_memory=30000)
    opened = open_converted(made.output, own_model(tmp_path / "table.yaml", None, None, ()))
    found, wanted = dict(sound_variables(opened)), expected(tensors(), dtype)
    assert found.keys() == wanted.keys()
    assert all(value.dtype == np.float32 for value in found.values())
    assert all(np.array_equal(found[key], wanted[key].float().numpy()) for key in wanted)
    if name.endswith(".npz"):
        with np.load(made.output) as arrays:
            assert all(np.array_equal(arrays[key], wanted[key].numpy()) for key in wanted)
    if name.endswith(".safetensors"):
        assert all(bits(value) == bits(wanted[key]) for key, value in load_file(made.output).items())


@pytest.mark.parametrize("name", ["out/", "out.safetensors", "out.npz"])
def test_damage_is_seen(tmp_path: Path, name: str) -> None:
    made = convert(tmp_path, sharded(tmp_path / "in", tensors()), name, dtype="float16")
    file = next(iter(sorted(made.output.glob("model-*")))) if made.output.is_dir() else made.output
    raw = bytearray(file.read_bytes())
    place = raw.index(bits(expected(tensors(), "float16")["up/kernel"]))
    raw[place] ^= 1
    file.write_bytes(raw)
    with pytest.raises(WdportError, match=r"SHA-256|CRC"):
        list(sound_variables(open_converted(made.output, own_model(tmp_path / "table.yaml", None, None, ()))))


def test_overflow_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    state = tensors(torch.float32)
    state["up.weight"][3, 4], state["up.weight"][5, 1] = 70000.0, -1e6
    source = sharded(tmp_path / "in", state)
    with pytest.raises(MisfitError, match=r"up.weight: 2 values overflow float16, the largest 1e\+06; use dtype"):
        convert(tmp_path, source, dtype="float16")
    assert not (tmp_path / "out").exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    convert(tmp_path, source, dtype="bfloat16")


def test_what_was_infinite_already_is_no_overflow(tmp_path: Path) -> None:
    state = tensors(torch.float32)
    state["up.weight"][3, 4] = torch.inf
    source = sharded(tmp_path / "in", state)
    with pytest.raises(WdportError, match="NaN or infinite"):
        convert(tmp_path, source, dtype="float16")
    made = convert(tmp_path, source, dtype="float16", allow_nonfinite=True)
    assert torch.isinf(in_folder(made.output)["up/kernel"]).sum() == 1


def test_too_small_a_budget_names_the_tensor_and_the_smallest_that_works(tmp_path: Path) -> None:
    source = sharded(tmp_path / "in", tensors())
    with pytest.raises(UsageError, match=r"b0: does not fit into max_memory=100; give max_memory=1048576 or more"):
        convert(tmp_path, source, max_memory=100)


def test_a_tie_that_does_not_hold_is_refused(tmp_path: Path) -> None:
    state = tensors()
    state["lm_head.weight"][0, 0] += 1
    with pytest.raises(MisfitError, match="which the table ties it to"):
        convert(tmp_path, sharded(tmp_path / "in", state), dtype="bfloat16")


def test_strided_tensors_of_torch_files(tmp_path: Path) -> None:
    state = tensors(torch.float32)
    state["up.weight"] = state["up.weight"].T.contiguous().T
    state["down.weight"] = torch.randn(8, 601)[:, 1::2]
    torch.save(state, tmp_path / "in.pt")
    made = convert(tmp_path, tmp_path / "in.pt", dtype="float16")
    found, wanted = in_folder(made.output), expected(state, "float16")
    assert all(bits(found[name]) == bits(wanted[name]) for name in wanted)


def test_a_folder_is_replaced_only_if_it_is_a_conversion(tmp_path: Path) -> None:
    source = sharded(tmp_path / "in", tensors())
    first = convert(tmp_path, source, dtype="bfloat16").manifest
    with pytest.raises(UsageError, match="exists already; give another name with output=, or force=True"):
        convert(tmp_path, source)
    again = convert(tmp_path, source, force=True)
    assert again.manifest["output"]["sha256"] != first["output"]["sha256"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out", "out.wdport.json", "table.yaml"]
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="a folder of other files, which is never replaced"):
        convert(tmp_path, source, force=True)
    with pytest.raises(UsageError, match="contains an input"):
        wdport.convert(source, f"{source}/", mapping=table(tmp_path), force=True)


def test_what_a_killed_process_left_is_removed_if_it_is_ours(tmp_path: Path) -> None:
    left, foreign = (tmp_path / f".out.{digit * 16}.wdport-tmp" for digit in "ab")
    for folder, name in ((left, "model-00001-of-00002.safetensors"), (foreign, "thesis.txt")):
        folder.mkdir()
        (folder / name).write_text("half")
    convert(tmp_path, sharded(tmp_path / "in", tensors()))
    assert not left.exists()
    assert (foreign / "thesis.txt").exists()


def test_an_interruption_ends_the_threads_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    written: list[str] = []

    def write(writer: ShardedWriter, name: str, start: int, data: memoryview) -> None:
        written.append(name)
        if len(written) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(ShardedWriter, "write_at", write)
    source, before = sharded(tmp_path / "in", tensors()), set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        convert(tmp_path, source)
    # Those of earlier tests may end meanwhile.
    assert set(threading.enumerate()) <= before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "table.yaml"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["-o", "a.keras", "--dtype", "bfloat16"],
            "--dtype: works with .safetensors, .npz and folders, not with .keras",
        ),
        (["-o", "a.npz", "--dtype", "bfloat16"], "--dtype: numpy has no bfloat16"),
        (["-o", "a.npz", "--dtype", "int8"], "--dtype: unknown name 'int8'"),
        (["-o", "a/", "--max-memory", "much"], "--max-memory: invalid size 'much'"),
        (["-o", "a.safetensors", "--max-shard-size", "1GB"], "has a file's suffix"),
        (["-o", "a"], "unknown output format"),
    ],
)
def test_what_does_not_go_together_is_one_line(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, arguments: list[str],
    message: str,
) -> None:  # fmt: skip
    save_file({"a": torch.zeros(2)}, tmp_path / "in.safetensors")
    monkeypatch.chdir(tmp_path)
    error = cli("convert", "in.safetensors", *arguments, code=2).err
    assert message in error
    assert error.count("\n") == 1


def test_buffers_are_within_the_budget() -> None:
    for size in (1, 6, 1 << 20, 117_440_512):
        budget = Budget(Budget.for_buffer(size))
        assert budget.buffer >= size
        assert 4 * budget.buffer + budget.rest <= budget.total


def test_a_full_disk_is_told_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = sharded(tmp_path / "in", tensors())
    monkeypatch.setattr("os.statvfs", lambda _: SimpleNamespace(f_bavail=1, f_frsize=512))
    with pytest.raises(MachineError, match=r"No space left on device: \d{5} bytes are needed\); free some space"):
        convert(tmp_path, source)
    assert not (tmp_path / "out").exists()
