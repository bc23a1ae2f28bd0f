"""Exports are verified: correct ones of every family pass, and faults of the code that exports fail and are named."""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import wdport
from tests.command import Cli, Refused
from tests.families.test_custom import files
from tests.uses.exporting.test_artifact import damage, edited
from tests.uses.exporting.test_network import converted_model, exported
from wdport.base.errors import InputError, MachineError
from wdport.cli.main import main
from wdport.conversion.load import open_converted
from wdport.families.registry import own_model
from wdport.uses.exporting import api, artifact, verification
from wdport.uses.exporting import lowering as lower

TWIN = """
import keras
from keras import layers, ops

class Labelled(keras.Model):
    def __init__(self):
        super().__init__()
        self.first, self.last, self.embed = layers.Dense(16), layers.Dense(2), layers.Embedding(3, 16)

    def call(self, x, t, labels, training=None):
        given = ops.concatenate([x, ops.cast(ops.reshape(t, (-1, 1)), x.dtype)], axis=1)
        return self.last(ops.tanh(self.first(given) + self.embed(labels)))

def build():
    return Labelled()
"""
TABLE = """
format: 2
keras: labelled_twin:build
inputs: ["x: b 2", "t: b, steps 1000", "labels: b, below 3"]
layers:
  - {torch: first, keras: first, kind: linear}
  - {torch: last, keras: last, kind: linear}
  - {torch: embed, keras: embed, kind: embedding}
sampling: {process: diffusion, beta_schedule: linear, num_train_timesteps: 1000, prediction_type: epsilon,
           time: fraction, shape: [2], name: points, classes: 3}
"""
SAMPLER = ("--what", "sampler", "--sampler", "ddim", "--steps", "4", "--eta", "0.5", "--spacing", "karras")


def converted(folder: Path, seed: int) -> Path:
    """A small denoiser with classes, and its table beside it."""
    torch.manual_seed(seed)
    shapes = {"first.weight": (16, 3), "first.bias": (16,), "last.weight": (2, 16), "last.bias": (2,),
              "embed.weight": (3, 16)}  # fmt: skip
    torch.save({name: torch.randn(shape) for name, shape in shapes.items()}, folder / f"{seed}.pt")
    (folder / "table.yaml").write_text(TABLE)
    return wdport.convert(folder / f"{seed}.pt", folder / f"{seed}.keras", mapping=folder / "table.yaml").output


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("verified")
    (folder / "labelled_twin.py").write_text(TWIN)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        make, made = verification.ModelSide, dict[tuple[object, ...], Any]()

        def side(converted: Any, *settings: str) -> Any:
            """The model is the same for all faults, and is compiled once."""
            key = (converted.path, *settings)
            if key not in made:
                made[key] = make(converted, *settings)
            return made[key]

        patch.setattr(verification, "ModelSide", side)
        yield converted(folder, 1)
    sys.modules.pop("labelled_twin", None)


@lru_cache
def opened(path: Path) -> Any:
    return open_converted(path, own_model(path.with_name("table.yaml"), None, None, ()))


def written(model: Path, path: Path, *words: str) -> Path:
    table = str(model.with_name("table.yaml"))
    assert main(["export", str(model), "--mapping", table, "-o", str(path), *words, "-q"]) == 0
    return path


def rounded(apply: Callable[..., Any]) -> Callable[..., Any]:
    return lambda weights, x, *more: apply(weights, x.astype(jnp.bfloat16).astype(x.dtype), *more)


def of_network(change: Callable[[Any], Any]) -> Callable[[pytest.MonkeyPatch], None]:
    """Change the network that is lowered."""

    def patched(patch: pytest.MonkeyPatch) -> None:
        from wdport.uses.sampling import network

        made = network.stored_network
        patch.setattr(network, "stored_network", lambda *given: change(made(*given)))

    return patched


def of(place: Any, name: str, change: Callable[..., Any]) -> Callable[[pytest.MonkeyPatch], None]:
    """Replace a function by ``change(function, *arguments)``."""

    def patched(patch: pytest.MonkeyPatch) -> None:
        own = getattr(place, name)
        patch.setattr(place, name, lambda *given, **more: change(own, *given, **more))

    return patched


def one_row(make: Any, *given: Any, **more: Any) -> Any:
    plan = make(*given, **more)
    coefficients = plan.coefficients.copy()
    coefficients[2] *= 1.001
    return replace(plan, coefficients=coefficients)


def another_slot(make: Any, *given: Any) -> Any:
    rows, slots = make(*given)
    return rows, np.maximum(slots, 1) - 1


FAULTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], tuple[str, ...], set[str]]] = {
    "one step is edited": (of(api, "plan_of", one_row), SAMPLER, {"drawn", "given"}),
    "labels are shifted": (
        of(lower, "_run", lambda run, *given: run(*given[:-1], [(given[-1][0] + 1) % 3])), SAMPLER, {"drawn", "given"}
    ),
    "indices are shifted": (of(lower, "sample_keys", lambda keys, seed, at: keys(seed, at + 1)), SAMPLER, {"drawn"}),
    "slots of the tape are shifted": (of(lower, "_segments", another_slot), SAMPLER, {"given"}),
    "the state is rounded": (
        of_network(lambda made: replace(made, apply=rounded(made.apply))), ("--what", "denoiser"), {"denoise"}
    ),
    "one time for all samples": (
        of_network(lambda made: replace(made, apply=lambda w, x, t, *more: made.apply(
            w, x, t[:1].repeat(t.shape[0]), *more))),
        ("--what", "denoiser"), {"denoise"},
    ),
    "weights are stored in 16 bits": (
        of(api, "write_artifact", lambda write, target, facts, programs, arrays: write(
            target, facts, programs, [each.astype(np.float16).astype(each.dtype) for each in arrays])),
        ("--what", "denoiser"), {"denoise"},
    ),
    "the outputs are negative": (
        of(lower, "stateless", lambda call, *given: -call(*given)), ("--what", "network"), {"call"}
    ),
    "an integer input is cast": (
        of(lower, "stateless", lambda call, m, w, v, inputs: call(m, w, v, (*inputs[:2], inputs[2] * 0))),
        ("--what", "network", "--batch-size", "2"), {"call"},
    ),
}  # fmt: skip
LONG = {"one step is edited", "slots of the tape are shifted", "one time for all samples", "the outputs are negative"}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.full] * (name in LONG)) for name in FAULTS])
def test_a_fault_fails_and_its_programs_are_named(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    change, words, programs = FAULTS[name]
    with monkeypatch.context() as patch:
        change(patch)
        path = written(model, tmp_path / "a.stablehlo", *words)
    found = verification.verify_artifact(opened(model), path)
    assert found.exit_code == 1
    assert {each.subject for gate in found.gates for each in gate.findings} == programs


def test_a_sampler_other_than_what_was_asked_for_fails(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file states what was asked for, not what was made."""
    with monkeypatch.context() as patch:
        of(api, "plan_of", lambda make, network, name, steps, eta, **other: make(network, name, steps, **other))(patch)
        path = written(model, tmp_path / "a.stablehlo", *SAMPLER)
    found = verification.verify_artifact(opened(model), path)
    assert found.exit_code == 1
    assert any("slots" in str(each) for gate in found.gates for each in gate.findings)


def test_a_sampler_of_classes_without_noise_passes(model: Path, tmp_path: Path) -> None:
    path = written(model, tmp_path / "a.stablehlo", "--what", "sampler", "--sampler", "ddim", "--steps", "3")
    assert verification.verify_artifact(opened(model), path)


@pytest.mark.parametrize("words", [SAMPLER, ("--what", "denoiser", "--dtype", "mixed_bfloat16")])
def test_a_correct_one_passes(model: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    path = written(model, tmp_path / "a.stablehlo", *words)
    found = verification.verify_artifact(opened(model), path)
    assert found
    assert all(0 < each < 4 for each in found.ratios.values())
    assert {name.partition(" ")[0] for name in found.inputs} == set(found.ratios)
    if "sampler" not in words:
        damage(path, edited(compute_dtype="float32"))
        assert verification.verify_artifact(opened(model), path).exit_code == 1
        return
    for change, subject in (
        (edited(target="sample"), "target"),
        (edited(classes=4), "classes"),
        (edited(sampler={**json.loads(zipfile.ZipFile(path).read("facts.json"))["sampler"], "steps": [1000, 500, 1]}),
         "sampler, steps"),
        (lambda members: members.update({"more.program": members["given.program"]}), "more"),
    ):  # fmt: skip
        (tmp_path / "b.stablehlo").write_bytes(path.read_bytes())
        damage(tmp_path / "b.stablehlo", change)
        found = verification.verify_artifact(opened(model), tmp_path / "b.stablehlo")
        assert (found.exit_code, [each.subject for each in found.gates[0].findings]) == (1, [subject])


def test_the_commands(model: Path, tmp_path: Path, cli: Cli, refused: Refused) -> None:
    """What was compared is in the facts; another model's file fails, and nothing is written."""
    path, table = tmp_path / "a.stablehlo", ("--mapping", model.with_name("table.yaml"))
    assert json.loads(cli("export", model, *table, "-o", path, "--verify", "--json").out)["verified"][0]["passed"]
    compared = artifact.read_facts(path)["compared"]
    assert compared["members"] == artifact.member_digests(path)
    assert list(compared["programs"]) == ["denoise"]
    assert "PASS  a.stablehlo is what 1.keras computes" in cli("verify", model, path, *table).out
    document = json.loads(cli("verify", converted(model.parent, 2), path, *table, "--json", code=1).out)
    assert document["kind"] == "verification"
    said = [each["text"] for each in document["gates"][0]["findings"]]
    assert said[0].startswith("denoise has ")
    assert "verified with another model when the file was written" in said
    with pytest.MonkeyPatch.context() as patch:
        FAULTS["the state is rounded"][0](patch)
        words = ("--what", "denoiser", "-o", tmp_path / "b.stablehlo", "--verify")
        assert "FAIL  b.stablehlo is not what 1.keras computes" in cli("export", model, *table, *words, code=1).out
    assert [each.name for each in tmp_path.iterdir()] == ["a.stablehlo"]
    refused("verify", model, path, *table, "--full", says="--full: does not apply to an exported program")
    damage(path, lambda members: members.update({"weights.bin": bytes(len(members["weights.bin"]))}))
    printed = cli("verify", model, path, *table, code=1).out
    assert "not the programs and weights that were verified when" in printed


def test_what_this_machine_lacks_is_one_line(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(model, tmp_path / "a.stablehlo", "--platforms", "cuda")
    with pytest.raises(MachineError, match="was exported for cuda, and this machine has cpu; verify it on"):
        verification.verify_artifact(opened(model), path)
    monkeypatch.setattr(verification.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MachineError, match="needs flatbuffers, which is not installed"):
        verification.verify_artifact(opened(model), path)


def test_the_process_is_apart(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It can import none of wdport, Keras and PyTorch, nor a module of the working folder or of PYTHONPATH, and it
    refuses another file than the one that was looked at."""
    path = written(model, tmp_path / "a.stablehlo", "--what", "network")
    for name in ("jax", "numpy", "loader", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('shadowed')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("SECRET", "1")
    assert "SECRET" not in verification.plain_environment()
    inputs = (np.zeros((2, 2), "f4"), np.zeros(2, "f4"), np.zeros(2, "i4"))
    (result,) = verification.run_calls(path, verification.Snapshot(path).sha256, [("call", inputs)])
    assert (result.error, result.dtypes) == ("", ("float32",))
    script = verification.HERE / "isolated.py"
    text = script.read_text().replace('loaded: Any = import_module("loader").load(artifact)', "import wdport")
    (tmp_path / "isolated.py").write_text(text)
    monkeypatch.setattr(verification, "HERE", tmp_path)
    (tmp_path / "loader.py").write_bytes((script.parent / "loader.py").read_bytes())
    with pytest.raises(InputError, match="import of wdport halted"):
        verification.run_calls(path, verification.Snapshot(path).sha256, [("call", inputs)])
    with pytest.raises(InputError, match="the file changed while it was verified"):
        verification.run_calls(path, "0" * 64, [("call", inputs)])


@pytest.mark.full
@pytest.mark.parametrize("family", ["masked_lm", "ts2vec", "unet2d", "wan_vae", "waveletdiff", "custom"])
def test_every_family(tmp_path: Path, family: str, cli: Cli) -> None:
    more: list[str] = []
    if family == "custom":
        checkpoint, table = files(tmp_path, "shared")
        path, more = wdport.convert(checkpoint, tmp_path / "a.keras", mapping=table).output, ["--mapping", str(table)]
    else:
        path = converted_model(family, tmp_path)
    kinds = {"waveletdiff": ((), SAMPLER), "unet2d": (("--what", "network"), ())}.get(family, ((),))
    for words in kinds:
        made = exported(path, *more, *words, "--force")
        cli("verify", path, made, *more)
        names = [name for name in zipfile.ZipFile(made).namelist() if name.endswith(".program")]
        found = verification.verify_artifact(
            open_converted(path, own_model(more[1] if more else None, None, None, ())), made
        )
        assert sorted(f"{name}.program" for name in found.ratios) == sorted(names)


@pytest.mark.parametrize("name", ["shared", "lstm"])
def test_tensors_are_read_back(tmp_path: Path, name: str, cli: Cli) -> None:
    checkpoint, table = files(tmp_path, name)
    model = wdport.convert(checkpoint, tmp_path / "own.keras", mapping=table).output
    command = ("export", model, "--mapping", table, "--to", "torch", "--verify", "-o")
    assert f"bits of {checkpoint.name}" in cli(*command, tmp_path / "a.safetensors").out
    from wdport.conversion import inverse as back

    for change, words, says in (
        (lambda tensor: tensor[::-1] if tensor.ndim == 2 else tensor, (), "does not give the variable"),
        (lambda tensor: tensor.astype("f8"), ("--like", checkpoint), "is float64"),
    ):
        with pytest.MonkeyPatch.context() as patch:
            of(back, "_inverted", lambda make, *given, change=change: {
                name: change(each) for name, each in make(*given).items()})(patch)  # fmt: skip
            assert says in cli(*command, tmp_path / "b.pt", *words, code=1).out
        assert not (tmp_path / "b.pt").exists()
