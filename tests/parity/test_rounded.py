"""A file that was rounded to 16 bits: verified against the reference with the same rounded weights, and said so."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest
import torch
from keras import layers
from safetensors.torch import load_file, save_file

import wdport
from tests.command import Cli
from wdport.base.errors import MisfitError

HERE = "tests.parity.test_rounded"
TABLE = f"""
format: 2
torch: {HERE}:reference
keras: {HERE}:build
inputs: ["x: b 6"]
layers:
  - {{torch: "0", keras: first, kind: linear}}
  - {{torch: "1", keras: second, kind: layer_norm}}
"""


def build() -> keras.Model:
    x = keras.Input((6,))
    return keras.Model(x, layers.LayerNormalization(epsilon=1e-5, name="second")(layers.Dense(5, name="first")(x)))


def reference() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.LayerNorm(5))


def by_itself(checkpoint: str) -> torch.nn.Module:
    module = reference()
    module.load_state_dict(load_file(checkpoint))
    return module


@pytest.fixture
def table(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    state = {name: torch.randn(value.shape) for name, value in reference().state_dict().items()}
    save_file(state, tmp_path / "in.safetensors")
    path = tmp_path / "table.yaml"
    path.write_text(TABLE)
    return path


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_rounded_weights_are_verified_as_such(table: Path, dtype: str) -> None:
    source = table.with_name("in.safetensors")
    made = wdport.convert(source, f"{table.parent}/out/", mapping=table, dtype=dtype)
    verdict = wdport.verify(source, made.output, mapping=table)
    assert verdict
    assert f"computes, with weights rounded to {dtype}" in verdict.summary()
    assert f"the weights were rounded to {dtype}" in str([str(each) for each in verdict.gates[0].findings])
    with pytest.raises(MisfitError, match=r"0\.weight than those given, and the converted file is rounded"):
        wdport.verify(source, made.output, mapping=table, reference=f"{HERE}:by_itself")
    other = load_file(source)
    other["0.weight"][0, 0] += 1
    save_file(other, table.with_name("other.safetensors"))
    assert not wdport.verify(table.with_name("other.safetensors"), made.output, mapping=table)


def test_a_recording_is_not_rounded(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = table.with_name("in.safetensors")
    made = wdport.convert(source, f"{table.parent}/out/", mapping=table, dtype="bfloat16")
    with pytest.raises(MisfitError, match="was rounded to bfloat16, and the recording is not"):
        wdport.verify_recording(made.output, table.with_name("none.npz"), mapping=table)


def test_a_model_is_loaded_in_its_own_dtype_or_in_float32(tmp_path: Path, cli: Cli) -> None:
    from tests.make import SETTINGS, make_state, save

    source = save(tmp_path / "small.ckpt", make_state())
    made = wdport.convert(source, f"{tmp_path}/out/", values=SETTINGS, dtype="bfloat16")
    shards = {name: value for file in made.output.glob("*.safetensors") for name, value in load_file(file).items()}
    tables = {name for name, value in shards.items() if value.dtype == torch.float32}
    assert tables == {target["path"] for tensor in made.manifest["tensors"] for target in tensor["targets"]
                      if tensor["source"] in {check["source"] for check in made.manifest["checks"]}}  # fmt: skip
    for dtype in (None, "bfloat16"):
        model = wdport.load_model(made.output, dtype)
        for variable in model.weights:
            assert str(variable.dtype) == ("float32" if dtype is None or variable.path in tables else dtype)
            wanted = shards[variable.path].float().numpy()
            assert np.array_equal(np.asarray(variable.value, np.float32), wanted), variable.path
    shown = cli("inspect", made.output).out
    assert "converted model (safetensors-sharded)" in shown
    assert "out.wdport.json agrees" in shown
    assert "bfloat16" in shown
    cli("sample", made.output, "-n", "2", "--sampler", "ddim", "--steps", "2")
    assert made.output.with_name("out.samples.npz").exists()
    assert "level_0/input_proj/kernel  bfloat16" in cli("map", "explain", "level_0/input_proj/kernel", made.output).out
