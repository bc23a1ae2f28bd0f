"""Training with a loss, and of masked language models: steps and losses are those of PyTorch and its libraries."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
import torch
from torch import nn

import wdport
from tests.command import Cli
from tests.families.test_custom import files
from tests.families.toys import nets
from tests.uses.masked_lm import make as eurobert
from wdport.base.errors import InputError, UsageError
from wdport.models.interface import Recipe
from wdport.models.keras_runtime import layer_dtype, variables_by_path
from wdport.optimizers.torch_like import Adam
from wdport.recording.float64 import lifted
from wdport.uses.masked_lm.reference import build_reference
from wdport.uses.training.supervised import cross_entropy


def network() -> Any:
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(5, activation="tanh"), keras.layers.Dense(3)])


def twin(model: Any) -> nn.Sequential:
    module = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    with torch.no_grad():
        for layer, parameters in zip(model.layers, (module[0], module[2]), strict=True):
            kernel, bias = layer.get_weights()
            parameters.weight.copy_(torch.from_numpy(kernel.T))  # type: ignore[operator]
            parameters.bias.copy_(torch.from_numpy(bias))  # type: ignore[operator]
    return module


def huber(targets: Any, outputs: Any) -> Any:
    """A loss of a user's own; torch's is `smooth_l1_loss`."""
    gap = jnp.abs(outputs - targets)
    return jnp.where(gap < 1.0, 0.5 * gap**2, gap - 0.5)


def root(targets: Any, outputs: Any) -> Any:
    """A loss of 0 whose slope is infinite."""
    return jnp.sqrt(jnp.abs(outputs - outputs)) + 0.0 * targets


LOSSES: dict[str, tuple[Any, Callable[..., torch.Tensor]]] = {
    "mse": ("mse", nn.functional.mse_loss),
    "cross_entropy": ("cross_entropy", nn.functional.cross_entropy),
    "a function": (huber, nn.functional.smooth_l1_loss),
    "its name": ("tests.uses.training.test_supervised:huber", nn.functional.smooth_l1_loss),
}


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("name", LOSSES)
def test_steps_are_those_of_pytorch(name: str) -> None:
    loss, reference = LOSSES[name]
    with layer_dtype(keras.DTypePolicy("float64")):
        model, random = network(), np.random.default_rng(0)
    module = twin(model)
    inputs = random.normal(size=(24, 4))
    targets = random.integers(0, 3, 24) if name == "cross_entropy" else random.normal(size=(24, 3))
    training = wdport.training_model(model, loss=loss)
    training.compile(optimizer=Adam([{"lr": 0.01, "weight_decay": 0.1}], clip_norm=0.5))
    history = training.fit((inputs, targets), batch_size=8, epochs=2, shuffle=False, verbose=0).history["loss"]
    optimizer = torch.optim.AdamW(module.parameters(), 0.01, weight_decay=0.1)
    for epoch in range(2):
        losses = []
        for first in range(0, 24, 8):
            part = slice(first, first + 8)
            value = reference(module(torch.from_numpy(inputs[part])), torch.from_numpy(targets[part]))
            optimizer.zero_grad()
            torch.autograd.backward(value)
            nn.utils.clip_grad_norm_(module.parameters(), 0.5)
            optimizer.step()
            losses.append(float(value.detach()))
        assert history[epoch] == pytest.approx(np.mean(losses), rel=1e-12)
    weights = [array.detach().numpy().T for array in module.parameters()]
    for ours, theirs in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-13)


@pytest.mark.usefixtures("exact")
def test_the_mean_of_two_batches_is_the_step_of_one_of_twice_the_size(tmp_path: Path) -> None:
    random, weights = np.random.default_rng(0), []
    inputs, targets = random.normal(size=(24, 4)), random.normal(size=(24, 3))
    plan = Recipe(learning_rate=0.01, schedule="onecycle", weight_decay=0.1, clip=0.5, epochs=2)
    for batch_size, accumulated in ((8, None), (4, 2)):
        with layer_dtype(keras.DTypePolicy("float64")):
            model = network()
        run = wdport.train(wdport.training_model(model, loss="mse"), inputs, tmp_path / str(batch_size),
                           targets=targets, batch_size=batch_size,
                           recipe=replace(plan, gradient_accumulation_steps=accumulated))  # fmt: skip
        assert run.steps == 2 * 24 // batch_size
        assert run.epochs[-1]["learning_rate"] == pytest.approx(4e-8)  # the cycle ends with the run
        weights.append(model.get_weights())
    for one, other in zip(*weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def listed(a: Any, m: Any, out: Any) -> Any:
    return keras.Model([a, m], out)


def by_name(a: Any, m: Any, out: Any) -> Any:
    return keras.Model({"m": m, "a": a}, out)


class Called(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.out = keras.layers.Dense(3)

    def call(self, a: Any, m: Any, scale: float = 1.0) -> Any:
        return self.out(scale * a * keras.ops.cast(m, a.dtype))


class Structured(Called):
    def call(self, inputs: Any) -> Any:
        return super().call(inputs["a"], inputs["m"])


@pytest.mark.parametrize("form", [listed, by_name, Called])
def test_steps_of_a_network_of_several_inputs_are_those_of_keras(form: Any, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    inputs = {"a": random.normal(size=(12, 4)).astype("float32"), "m": random.random((12, 4)) < 0.6}
    targets = random.normal(size=(12, 3)).astype("float32")
    np.savez(tmp_path / "inputs.npz", **inputs)

    def network(form: Any = form) -> Any:
        keras.utils.set_random_seed(0)
        if form is Called:
            model = Called()
            model(*inputs.values())
            return model
        a, m = keras.Input((4,), name="a"), keras.Input((4,), name="m", dtype="bool")
        return form(a, m, keras.layers.Dense(3)(a * keras.ops.cast(m, "float32")))

    plain = network(listed if form is Called else form)
    plain.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
    several = [inputs["m"], inputs["a"]] if form is by_name else [*inputs.values()]
    expected = plain.fit(inputs if form is by_name else several, targets, batch_size=12, epochs=3, verbose=0).history
    for number, data in enumerate([several, inputs, tmp_path / "inputs.npz"]):
        training = wdport.training_model(network(), loss="mse")
        run = wdport.train(training, data, tmp_path / str(number), targets=targets, batch_size=12, epochs=3,
                           optimizer=keras.optimizers.SGD(0.1))  # fmt: skip
        assert run.losses == pytest.approx(expected["loss"], rel=1e-6)
    refused: list[tuple[str, Any]] = [
        ("z: is not an input of the model; give arrays", {**inputs, "z": targets}),
        ("a: is missing|data: have 1 of 2 inputs", {"m": inputs["m"]}),
        ("have 4 of", [targets] * 4),
        (". are|m: are|a: are", [several[0], several[1][:5]]),
    ]
    if form is not Called:
        refused.append(("a: do not fit the model: a sample has shape .3,., and the model takes .4,.",
                        {**inputs, "a": inputs["a"][:, :3]}))  # fmt: skip
    for message, wrong in refused:
        with pytest.raises(UsageError, match=f"data: {message}"):
            wdport.train(training, wrong, tmp_path / "run", targets=targets)


def test_a_network_that_takes_a_dictionary(tmp_path: Path) -> None:
    inputs = {"m": np.ones((6, 4), bool), "a": np.random.default_rng(0).normal(size=(6, 4)).astype("float32")}
    targets = np.zeros((6, 3), np.float32)
    np.savez(tmp_path / "inputs.npz", **inputs)
    losses = []
    for data in (inputs, tmp_path / "inputs.npz"):
        keras.utils.set_random_seed(0)
        model = Structured()
        expected = np.mean(np.asarray(model(inputs)) ** 2)
        run = wdport.train(wdport.training_model(model, loss="mse"), data, tmp_path / str(len(losses)), targets=targets)
        losses += run.losses
    assert losses == pytest.approx([expected, expected], rel=1e-6)


def test_numbers_that_the_device_or_the_model_does_not_have_are_refused(tmp_path: Path) -> None:
    ids = keras.Input((5,), dtype="int32", name="ids")
    model = keras.Model(ids, keras.layers.Dense(3)(keras.layers.Embedding(20, 4)(ids)))
    for wrong, message in ((np.full((4, 5), 2**32), "have whole numbers of more than 32 bits"),
                           (np.full((4, 5), 0.5), "have fractions, and the model takes whole numbers")):  # fmt: skip
        with pytest.raises(UsageError, match=f"data: {message}"):
            wdport.train(wdport.training_model(model, loss="mse"), wrong, tmp_path / "a", targets=np.zeros((4, 5, 3)))


def test_integers_that_the_table_excludes_are_refused(tmp_path: Path) -> None:
    checkpoint, table = files(tmp_path, "words")
    output = wdport.convert(checkpoint, tmp_path / "words.keras", mapping=table).output
    training = wdport.training_model(wdport.load_model(output, mapping=table), loss=huber)
    with pytest.raises(UsageError, match="data: have values from 50 to 50; give 0 to 49, or correct the table"):
        wdport.train(training, np.full((4, 8), 50), tmp_path / "a", targets=np.zeros((4, 3)))


def test_the_command_trains_a_users_model_of_several_inputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.chdir(tmp_path)
    checkpoint, table = files(tmp_path, "shared")
    wdport.convert(checkpoint, "shared.keras", mapping=table)
    random = np.random.default_rng(0)
    x, y, targets = (random.normal(size=(20, 6)).astype("float32") for _ in range(3))
    np.savez("both.npz", y=y, x=x)
    np.save("targets.npy", targets)
    module = nets.shared()
    module.load_state_dict(torch.load(checkpoint))
    optimizer, losses = torch.optim.AdamW(module.parameters(), 0.01), []
    for _ in range(3):
        loss = nn.functional.mse_loss(module(torch.from_numpy(x), torch.from_numpy(y)), torch.from_numpy(targets))
        losses.append(float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    words = ["train", "both.npz", "--resume", "shared.keras", "--mapping", str(table), "--loss", "mse", "-o", "run"]
    words += ["--targets", "targets.npy", "--epochs", "3", "--batch-size", "20", "--lr", "0.01"]
    cli(*words)
    rows = (tmp_path / "run" / "metrics.csv").read_text().splitlines()[1:]
    assert [float(row.split(",")[2]) for row in rows] == pytest.approx(losses, rel=1e-5)


def test_samples_that_fill_a_batch_do_not_count(tmp_path: Path) -> None:
    model, random = network(), np.random.default_rng(1)
    inputs, targets = random.normal(size=(5, 4)).astype("float32"), random.integers(0, 2, 5).astype(bool)
    logits = model.predict(inputs, verbose=0)
    expected = float(np.mean(cross_entropy(jnp.asarray(targets, int), jnp.asarray(logits))))
    still = Adam([{"lr": 0.0, "weight_decay": 0.0}])
    run = wdport.train(wdport.training_model(model, loss="cross_entropy"), inputs, tmp_path / "run", batch_size=4,
                       targets=targets, optimizer=still)  # fmt: skip
    assert run.losses == pytest.approx([expected], rel=1e-6)
    assert run.epochs[0]["accuracy"] == pytest.approx(np.mean(logits.argmax(-1) == targets))


@pytest.mark.parametrize(("loss", "inputs", "targets", "message"), [
    ("mse", np.zeros((6, 4)), None, "targets: are missing"),
    ("mse", np.zeros((6, 4)), np.zeros((6, 2)), r"give \(6, 3\)"),
    ("mse", np.zeros((6, 4)), np.zeros((5, 3)), "are 5, and there are 6 samples"),
    ("mse", np.full((6, 4), np.nan), np.zeros((6, 3)), "NaN"),
    ("mse", np.zeros((6, 7)), np.zeros((6, 3)),
     r"data: do not fit the model: a sample has shape \(7,\), and the model takes \(4,\); give the"),
    ("cross_entropy", np.zeros((6, 4)), np.zeros(6), "have the dtype float32; give classes"),
    ("cross_entropy", np.zeros((6, 4)), np.full(6, 3), "give 0 to 2"),
    ("huber", np.zeros((6, 4)), np.zeros((6, 3)), "give mse, cross_entropy or MODULE:FUNCTION"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(loss: str, inputs: Any, targets: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        wdport.train(wdport.training_model(network(), loss=loss), inputs, tmp_path / "run", targets=targets)
    assert not list(tmp_path.glob("run/*.npz"))


@pytest.mark.parametrize(("arguments", "message"), [
    ({}, "give a loss: mse, cross_entropy or MODULE:FUNCTION"),
    ({"loss": "mse", "min_snr": 5.0}, "min_snr: is for a model that draws samples"),
    ({"loss": "mse", "mask_rate": 0.5}, "mask_rate: is for a masked language model"),
])  # fmt: skip
def test_arguments_of_another_objective_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        wdport.training_model(network(), **arguments)


def test_a_run_with_another_loss_is_refused(tmp_path: Path) -> None:
    data = np.zeros((6, 4), "float32"), np.zeros((6, 3), "float32")
    wdport.train(wdport.training_model(network(), loss="mse"), data[0], tmp_path, targets=data[1])
    with pytest.raises(UsageError, match="loss"):
        wdport.train(wdport.training_model(network(), loss=huber), data[0], tmp_path, targets=data[1], epochs=2)


@pytest.fixture(scope="module")
def language(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("language")
    return wdport.convert(eurobert.save(folder / "m", eurobert.fields_of("as published"))).output


@pytest.mark.usefixtures("exact")
def test_the_masked_loss_is_that_of_transformers(language: Path) -> None:
    training: Any = wdport.training_model(wdport.load_model(language, "float64"), mask_rate=0.3, mask_span=2)
    tokens = np.random.default_rng(0).integers(0, 30, (4, 12)).astype("int32")
    tokens[0, :5] = 1  # padding
    losses, count = training.loss_values(training(tokens, training=False), None)
    masked, corrupted = map(np.array, training.corrupt(training.key(False), jnp.asarray(tokens), tokens != 1))
    assert count == masked.sum() > 5
    fields = eurobert.fields_of("as published")
    module = build_reference(eurobert.config_of(fields), eurobert.tensors_of(fields), "float64")
    labels = torch.from_numpy(np.where(masked, tokens, -100)).long()
    with torch.no_grad(), lifted():
        result = module(torch.from_numpy(corrupted).long(), torch.from_numpy(tokens != 1).long(), labels=labels)
    assert float(losses["loss"]) == pytest.approx(float(result.loss), rel=1e-6)  # the library's loss is in float32
    logits = result.logits.numpy()[masked]
    expected = nn.functional.cross_entropy(torch.from_numpy(logits), torch.from_numpy(tokens[masked]).long())
    assert float(losses["loss"]) == pytest.approx(float(expected), rel=1e-11)
    assert float(losses["accuracy"]) == pytest.approx(np.mean(logits.argmax(-1) == tokens[masked]))


@pytest.mark.parametrize(("arguments", "message"), [
    ({"mask_rate": 0.0}, "mask_rate: invalid value 0.0; give a number above 0 and below 1"),
    ({"mask_rate": math.nan}, "mask_rate: invalid value nan; give a number above 0 and below 1"),
    ({"mask_span": 0}, "mask_span: invalid value 0; give a whole number from 1 to"),
    ({"mask_span": 2.0}, "mask_span: invalid value 2.0; give a whole number from 1 to"),
])  # fmt: skip
def test_masks_that_cannot_be_drawn(arguments: Any, message: str, language: Path) -> None:
    with pytest.raises(UsageError, match=message):
        wdport.training_model(wdport.load_model(language), **arguments)


def test_a_language_model_without_a_mask_token(tmp_path: Path) -> None:
    fields = {**eurobert.fields_of("as published"), "mask_token_id": 128002}
    model = wdport.load_model(wdport.convert(eurobert.save(tmp_path / "m", fields)).output)
    with pytest.raises(UsageError, match=r"names no mask token; convert it with values=\{'mask_token_id': 'N'\}"):
        wdport.training_model(model)


@pytest.mark.parametrize("span", [1, 3])
def test_tokens_are_masked_as_often_as_stated(span: int, language: Path) -> None:
    training: Any = wdport.training_model(wdport.load_model(language), mask_rate=0.2, mask_span=span)
    tokens = np.random.default_rng(1).integers(3, 30, (400, 100)).astype("int32")
    tokens[:, 90:] = 1
    masked, corrupted = map(np.array, training.corrupt(jax.random.key(0), jnp.asarray(tokens), tokens != 1))
    assert not masked[:, 90:].any()
    assert np.array_equal(corrupted[~masked], tokens[~masked])
    assert masked[:, :90].mean() == pytest.approx(0.2, abs=0.01)
    assert (corrupted[masked] == 2).mean() == pytest.approx(0.8 + 0.1 / 30, abs=0.02)
    assert (corrupted[masked] == tokens[masked]).mean() == pytest.approx(0.1 + 0.1 / 30, abs=0.02)
    # A span that begins and ends within a sample is at least as long as stated.
    runs = [
        len(run) for row in masked[:, :90].astype(int) for run in "".join(map(str, row)).strip("1").split("0") if run
    ]
    assert min(runs) == span


def test_a_language_model_learns_a_text(language: Path, tmp_path: Path) -> None:
    tokens = np.tile(np.arange(3, 19, dtype="int32"), (64, 2))
    run = wdport.train(wdport.load_model(language), tokens, tmp_path / "run", epochs=40, batch_size=32,
                       optimizer=Adam([{"lr": 1e-2, "weight_decay": 0.0}]), validation_split=0.25)  # fmt: skip
    assert run.epochs[-1]["val_loss"] < 0.5 * run.epochs[0]["val_loss"]
    assert run.epochs[-1]["accuracy"] > run.epochs[0]["accuracy"] + 0.3


@pytest.mark.parametrize("tokens", [np.zeros((4, 6)), np.full((4, 6), 30), np.full((4, 6), -1), np.zeros(6, int)])
def test_what_are_no_tokens_is_refused(tokens: Any, language: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"give whole numbers \(n, L\) from 0 to 29"):
        wdport.train(wdport.load_model(language), tokens, tmp_path / "run")


def test_the_best_weights_have_their_own_running_statistics(tmp_path: Path) -> None:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.BatchNormalization(name="norm"), keras.layers.Dense(3)])
    random = np.random.default_rng(2)
    inputs, targets = random.normal(size=(40, 4)).astype("float32"), random.normal(size=(40, 3)).astype("float32")
    run = wdport.train(wdport.training_model(model, loss="mse"), inputs, tmp_path / "run", epochs=6, targets=targets,
                       validation_split=0.2, optimizer=Adam([{"lr": 0.5, "weight_decay": 0.0}]))  # fmt: skip
    assert run.best is not None
    lowest = min(row["val_loss"] for row in run.epochs)
    assert run.epochs[-1]["val_loss"] > lowest
    for path, variable in variables_by_path(model).items():
        variable.assign(run.best[path])
    outputs = model.predict(inputs[32:], verbose=0)
    assert np.mean((outputs - targets[32:]) ** 2) == pytest.approx(lowest, rel=1e-5)


def test_weights_that_are_not_finite_are_not_saved(tmp_path: Path) -> None:
    data = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
    targets = np.zeros((8, 3), np.float32)
    text = "training: weights are not finite numbers after 1 steps; nothing was saved; lower the learning rate"
    with pytest.raises(UsageError, match=text):
        wdport.train(wdport.training_model(network(), loss=root), data, tmp_path / "run", targets=targets, epochs=2)
    assert not (tmp_path / "run" / "state.npz").exists()


def test_evaluate_lists_the_loss_once_and_a_lost_table_is_written_again(tmp_path: Path) -> None:
    data = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
    training = wdport.training_model(network(), loss="mse")
    for _ in range(2):
        run = wdport.train(training, data, tmp_path / "run", targets=data[:, :3], epochs=1)
        lines = (tmp_path / "run" / "metrics.csv").read_text().splitlines()
        assert lines[1].split(",")[2] == str(run.losses[0])
        (tmp_path / "run" / "metrics.csv").unlink()
    training.compile("sgd")
    loss = training.evaluate((data, data[:, :3]), verbose=0)
    assert loss == pytest.approx(np.mean((training.network.predict(data, verbose=0) - data[:, :3]) ** 2), rel=1e-5)


def test_booleans_of_a_file_are_0_or_1(tmp_path: Path) -> None:
    np.save(tmp_path / "mask.npy", np.full((4, 4), 2, np.uint8).view(bool))
    training = wdport.training_model(network(), loss="mse")
    with pytest.raises(InputError, match=r"mask\.npy: .*a boolean is neither 0 nor 1"):
        wdport.train(training, tmp_path / "mask.npy", tmp_path / "run", targets=np.zeros((4, 3)))
