"""Back to PyTorch: bit for bit what the checkpoint held, loaded with ``strict=True``; also after more training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import wdport
from tests.command import Cli, Refused
from tests.families.test_custom import TABLES, files
from tests.families.toys import nets
from tests.make import SETTINGS, SMALL, inputs, make_state, save
from tests.uses.exporting.test_export import called
from tests.uses.ts2vec import make as encoders
from tests.uses.unet2d import make as unets
from wdport.base.errors import UsageError
from wdport.cli.main import main
from wdport.files.model_target import Target
from wdport.files.outputs import writable
from wdport.uses.exporting.to_torch import write_tensors
from wdport.uses.waveletdiff.reference import WaveletDiff

State = Mapping[str, torch.Tensor]


def exported(*words: object) -> State:
    """What ``wdport export --to torch`` writes, as torch reads it."""
    output = Path(str(words[-1]))
    assert main(["export", *map(str, words[:-1]), "--to", "torch", "-o", str(output)]) == 0
    if output.suffix == ".safetensors":
        return load_file(output)
    found: State = torch.load(output, weights_only=True)
    return found


def differing(found: State, stored: State) -> set[str]:
    """Names of tensors that are not the stored ones, bit for bit."""
    assert set(found) <= set(stored)
    return set(stored) - {name for name, each in found.items()
                          if each.dtype == stored[name].dtype and torch.equal(each, stored[name])}  # fmt: skip


SUFFIXES = ("safetensors", "pt")


@pytest.mark.parametrize(("name", "suffix"), [(name, SUFFIXES[at % 2]) for at, name in enumerate(TABLES)])
def test_a_model_of_the_users_own(tmp_path: Path, name: str, suffix: str) -> None:
    checkpoint, table = files(tmp_path, name)
    stored: State = torch.load(checkpoint, weights_only=True)
    wdport.convert(checkpoint, tmp_path / "a.keras", mapping=table)
    words = [tmp_path / "a.keras", "--mapping", table]
    summed = "bias_" if name == "lstm" else "parametrizations"  # by arithmetic: two biases, weight_norm
    joined = {each for each in stored if summed in each}
    counted = {each for each in stored if each.endswith("num_batches_tracked")}
    (other,) = {*SUFFIXES} - {suffix}
    without = exported(*words, tmp_path / f"b.{other}")
    assert differing(without, stored) - joined == counted
    found = exported(*words, "--like", checkpoint, tmp_path / f"c.{suffix}")
    assert differing(found, stored) <= joined
    wdport.to_torch(tmp_path / "a.keras", tmp_path / f"d.{suffix}", mapping=table, like=checkpoint)
    assert (tmp_path / f"d.{suffix}").read_bytes() == (tmp_path / f"c.{suffix}").read_bytes()
    with pytest.raises(UsageError, match="exists already"):
        wdport.to_torch(tmp_path / "a.keras", tmp_path / f"d.{suffix}", mapping=table)
    first, second = getattr(nets, name)().eval(), getattr(nets, name)().eval()
    first.load_state_dict(stored, strict=True)
    second.load_state_dict(found, strict=True)
    if joined:
        assert differing(found, stored)
        x = torch.randn(3, 9, 5)
        with torch.no_grad():
            torch.testing.assert_close(second(x), first(x), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_waveletdiff(tmp_path: Path, dtype: torch.dtype) -> None:
    stored = {name: each.to(dtype) for name, each in make_state().items()}
    checkpoint = save(tmp_path / "a.pt", stored, lightning=False)
    wdport.convert(checkpoint, tmp_path / "a.keras", values=SETTINGS)
    found = exported(tmp_path / "a.keras", "--like", checkpoint, tmp_path / "c.pt")
    assert differing(found, stored) == set()
    without = exported(tmp_path / "a.keras", tmp_path / "b.safetensors")
    assert set(without) == set(stored)
    off = differing(without, stored)
    assert not any(name.endswith((".weight", ".bias")) for name in off)
    assert all(without[name].dtype == torch.float32 for name in off)  # tables, by their formulas
    if dtype == torch.float32:
        for name in off:
            torch.testing.assert_close(without[name], stored[name], rtol=0, atol=1e-6)
        WaveletDiff(SMALL).load_state_dict(without, strict=True)


def test_other_families(tmp_path: Path, cli: Cli) -> None:
    checkpoint = encoders.save(tmp_path / "encoder.pt")
    wdport.convert(checkpoint, tmp_path / "encoder.keras")
    inner = {name: each for name, each in torch.load(checkpoint, weights_only=True).items() if name != "n_averaged"}
    stored: State = {name.removeprefix("module."): each for name, each in inner.items()}
    printed = cli("export", tmp_path / "encoder.keras", "--to", "torch", "-o", tmp_path / "encoder.pth").out
    assert "without the prefix module. of the checkpoint" in printed
    assert differing(torch.load(tmp_path / "encoder.pth", weights_only=True), stored) == set()
    folder = unets.save(tmp_path / "unet", unets.fields_of("attention at every size"))
    wdport.convert(folder, tmp_path / "unet.keras")
    stored = load_file(folder / "diffusion_pytorch_model.safetensors")
    assert differing(exported(tmp_path / "unet.keras", tmp_path / "unet.pt"), stored) == set()


def test_a_model_that_keras_trained_on(tmp_path: Path, refused: Refused) -> None:
    checkpoint = save(tmp_path / "a.pt", make_state(), lightning=False)
    model: Any = wdport.load_model(wdport.convert(checkpoint, values=SETTINGS).output)
    rng = np.random.default_rng(0)
    for variable in model.trainable_variables:
        variable.assign(np.asarray(variable) + 0.01 * rng.standard_normal(variable.shape))
    model.save(tmp_path / "trained.keras")
    says = "was saved by Keras and does not describe the checkpoint; give the"
    refused("export", tmp_path / "trained.keras", "--to", "torch", code=4, says=says)
    found = exported(tmp_path / "trained.keras", "--like", checkpoint, tmp_path / "back.pt")
    parameters = set(dict(WaveletDiff(SMALL).named_parameters()))
    assert differing(found, torch.load(checkpoint, weights_only=True)) == parameters
    module = WaveletDiff(SMALL).eval()
    module.load_state_dict(found, strict=True)
    state, time = (torch.from_numpy(values).float() for values in inputs(SMALL, batch=2))
    with torch.no_grad():
        wanted = module(state, time).numpy()
    ours = called(model, state.numpy(), time.numpy())
    assert np.linalg.norm(ours - wanted) < 1e-5 * np.linalg.norm(wanted)


def test_refusals(tmp_path: Path, cli: Cli, refused: Refused) -> None:
    checkpoint = save(tmp_path / "a.pt", make_state(), lightning=False)
    model, other = wdport.convert(checkpoint, values=SETTINGS).output, encoders.save(tmp_path / "b.pt")
    wider = save(tmp_path / "c.pt", make_state(replace(SMALL, time_embed_dim=16)), lightning=False)
    foreign = "does not belong to the model in a.keras"
    for words, code, says in (
        (("-o", checkpoint), 2, "exists"),
        (("-o", "a.npz"), 2, "end the name in .safetensors, .pt, .pth"),
        (("--steps", "3"), 2, "--steps: requires --to stablehlo"),
        (("--like", other), 4, f"b.pt: {foreign}; give a checkpoint of it"),
        (("--like", wider), 4, f"c.pt: {foreign}: time_embed_dim is 8 in the config but 16"),
        (("--like", tmp_path / "none.pt"), 3, "none.pt: "),
    ):
        refused("export", model, "--to", "torch", *words, code=code, says=says)
    cli("export", model, "--like", other, code=2)


def test_the_streamed_file_is_what_the_library_reads(tmp_path: Path) -> None:
    half = torch.randn(3).to(torch.bfloat16)
    state = {"odd": torch.tensor([True, False, True]), "half": half, "count": torch.tensor(7),
             "wide": torch.randn(2, 3, dtype=torch.float64), "none": torch.zeros(0, 4)}  # fmt: skip
    held = {name: _numpy(value) for name, value in state.items()}
    size = write_tensors(Target(writable(tmp_path / "a.safetensors"), "safetensors"), held)
    found = load_file(tmp_path / "a.safetensors")
    assert size == (tmp_path / "a.safetensors").stat().st_size
    assert all(found[name].dtype == value.dtype and torch.equal(found[name], value) for name, value in state.items())


def _numpy(value: Any) -> Any:
    if value.dtype == torch.bfloat16:
        return value.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return value.numpy()
