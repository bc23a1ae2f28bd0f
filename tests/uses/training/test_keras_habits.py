"""What users of Keras expect of its models: penalties, weights of samples, callbacks, and a model that errors leave."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

import wdport
from wdport.base.errors import UsageError
from wdport.optimizers.torch_like import Adam
from wdport.uses.training.supervised import name_of

RNG = np.random.default_rng(0)
X = RNG.normal(size=(50, 6)).astype(np.float32)
Y = (X @ RNG.normal(size=(6, 3))).astype(np.float32)
SERIES = RNG.normal(size=(20, 5, 2)).astype(np.float32)


def model(outputs: int = 3, activation: str = "tanh", rate: float = 0.0, **hidden: Any) -> keras.Model:
    keras.utils.set_random_seed(1)
    x = keras.Input((6,))
    y = layers.Dropout(rate)(layers.Dense(8, activation=activation, **hidden)(x))
    return keras.Model(x, layers.Dense(outputs)(y))


def trained(network: Any, folder: Path, targets: Any = Y, loss: Any = "mse", **given: Any) -> list[float]:
    training = wdport.training_model(network, loss=loss)
    return wdport.train(training, X, folder, targets=targets, **{"epochs": 2, "batch_size": 8, **given}).losses


PENALTIES = {
    "of weights": lambda: model(kernel_regularizer="l2", bias_regularizer="l1"),
    "of outputs": lambda: model(activity_regularizer=keras.regularizers.L2(0.1)),
}


@pytest.mark.parametrize("name", PENALTIES)
def test_penalties_are_part_of_the_loss_as_in_keras(name: str, tmp_path: Path) -> None:
    theirs, ours, fitted = (PENALTIES[name]() for _ in range(3))
    theirs.compile(keras.optimizers.SGD(0.05), loss="mse")
    expected = theirs.fit(X, Y, batch_size=50, epochs=3, verbose=0, validation_data=(X, Y)).history
    given = {"optimizer": keras.optimizers.SGD(0.05), "epochs": 3, "batch_size": 50}
    np.testing.assert_allclose(trained(ours, tmp_path / "run", **given), expected["loss"], rtol=1e-6)
    training = wdport.training_model(fitted, loss="mse")
    training.compile(keras.optimizers.SGD(0.05))
    history = training.fit((X, Y), batch_size=50, epochs=3, verbose=0, validation_data=((X, Y),)).history
    np.testing.assert_allclose(history["loss"], expected["loss"], rtol=1e-6)
    np.testing.assert_allclose(history["val_loss"], expected["val_loss"], rtol=1e-6)
    for one, other, third in zip(*(each.get_weights() for each in (theirs, ours, fitted)), strict=True):
        np.testing.assert_allclose(other, one, atol=1e-6)
        np.testing.assert_allclose(third, one, atol=1e-6)


def test_sample_weight_is_the_second_argument_of_fit() -> None:
    weights = np.zeros(50)
    weights[:8] = 1

    def losses(*arguments: Any, **given: Any) -> list[float]:
        training = wdport.training_model(model(), loss="mse")
        training.compile(keras.optimizers.SGD(0.1))
        history: dict[str, list[float]] = training.fit((X, Y), *arguments, batch_size=50, epochs=2, verbose=0,
                                                       **given).history  # fmt: skip
        return history["loss"]

    assert losses(weights) == losses(sample_weight=weights) != losses()
    evaluated = wdport.training_model(model(), loss="mse")
    evaluated.compile()
    first = evaluated.evaluate((X[:8], Y[:8]), verbose=0)
    assert evaluated.test_on_batch((X[:8], Y[:8])) == pytest.approx(first, rel=1e-6)
    assert evaluated.evaluate((X, Y), sample_weight=weights, batch_size=50, verbose=0) == pytest.approx(first, rel=1e-6)
    for given in ({"class_weight": {0: 1.0}}, {"y": weights, "sample_weight": weights}):
        with pytest.raises(UsageError, match="fit: takes one array of weights"):
            losses(**given)


def test_samples_of_weight_0_may_have_any_target() -> None:
    weights, classes = (np.arange(50) < 40).astype(np.float32), RNG.integers(0, 3, 50)

    def fitted(filled: int) -> tuple[float, list[np.ndarray]]:
        network = model()
        training = wdport.training_model(network, loss="cross_entropy")
        training.compile(keras.optimizers.SGD(0.1))
        targets = np.where(weights > 0, classes, filled)
        return training.fit((X, targets), weights, batch_size=50, verbose=0).history["loss"][0], network.get_weights()

    (loss, ours), (other, theirs) = fitted(-100), fitted(0)
    assert np.isfinite(loss)
    assert loss == other
    assert all(map(np.array_equal, ours, theirs))


def raising(targets: Any, outputs: Any) -> Any:
    raise RuntimeError("a typo")


MISUSED: dict[str, tuple[Callable[[Any], object], str]] = {
    "no pair": (lambda training: training.fit(X, Y, verbose=0), "fit: gets no pair of inputs and targets; write fit"),
    "evaluate": (lambda training: training.evaluate(X, Y, verbose=0), "fit: gets no pair"),
    "predict": (lambda training: training.predict(X, verbose=0), "fit: gets no pair"),
    "a pair of rows": (lambda training: training.fit(X[:2], Y[:2], batch_size=2, verbose=0), "fit: gets no pair"),
    "fewer targets": (lambda training: training.fit((X, Y[:, :1]), verbose=0), r"targets: have shape \(32, 1\); give"),
    "a loss": (lambda training: training.compile("adam", loss="mae"), "compile: this model has a loss and metrics"),
    "weights of losses": (
        lambda training: training.compile("adam", loss_weights=[1]),
        "compile: this model has a loss",
    ),
}


@pytest.mark.parametrize("name", MISUSED)
def test_an_error_leaves_the_weights(name: str) -> None:
    network = model()
    training = wdport.training_model(network, loss="mse")
    training.compile("adam")
    training.fit((X, Y), verbose=0)
    before = network.get_weights()
    call, message = MISUSED[name]
    with pytest.raises(UsageError, match=message):
        call(training)
    assert all(map(np.array_equal, before, network.get_weights()))


REFUSED: dict[str, tuple[Callable[[], Any], dict[str, Any], str]] = {
    "a loss that raises": (model, {"loss": raising}, "loss: .*:raising raises RuntimeError: a typo"),
    "a mean": (model, {"loss": keras.losses.Huber()}, r"loss: .*:Huber returns the shape \(\); return the losses"),
    "nothing": (model, {"loss": lambda targets, outputs: None}, "loss: .* returns no array"),
    "targets without an axis": (partial(model, 1), {"targets": Y[:, 0], "loss": lambda t, o: (t - o) ** 2},
                                r"targets: have shape \(8,\), the outputs \(8, 1\), and the losses \(8, 8\)"),
    "float classes": (model, {"targets": Y[:, 0], "loss": "cross_entropy"}, "targets: have the dtype float32"),
    "no targets": (model, {"targets": Y[:0]}, r"targets: are empty, of shape \(0, 3\)"),
    "NaN": (model, {"targets": np.full_like(Y, np.nan)}, "targets: have NaN or infinite values"),
    "a transform": (model, {"transform": "zscore"}, "transform=: is for a model of series"),
    "no callbacks": (model, {"callbacks": None}, "callbacks: are not callbacks of Keras"),
    "a class": (model, {"callbacks": [keras.callbacks.TerminateOnNaN]}, "callbacks: are not callbacks of Keras"),
    "not built": (lambda: keras.Sequential([layers.Dense(3)]), {}, "model: is not built, so it has no weights"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    build, given, message = REFUSED[name]
    network = build()
    with pytest.raises(UsageError, match=message):
        trained(network, tmp_path / "run", **given)
    if network.built:
        assert all(map(np.array_equal, model(network.output_shape[-1]).get_weights(), network.get_weights()))


class Own(keras.Model):  # type: ignore[misc]
    def __init__(self, says: str) -> None:
        super().__init__()
        self.says, self.dense = says, layers.Dense(3)
        self.dense.build((None, 4))
        self.built = True

    def call(self, inputs: Any, training: bool = False) -> Any:
        raise ValueError(self.says)


@pytest.mark.parametrize(
    ("says", "shown"), [("takes no rows", "says: takes no rows"), ("a" * 200, "raises ValueError")]
)
def test_an_error_of_a_model_is_stated_or_left_out(says: str, shown: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"and the model {shown}; give the inputs of the model"):
        trained(Own(says), tmp_path / "run")


def test_batches_at_the_end_that_do_not_fill_a_step_are_not_applied(tmp_path: Path) -> None:
    network, seen = model(), list[Any]()
    watching = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: (
        network_training.jax_state_sync(), seen.append(network.get_weights())))  # fmt: skip
    network_training = wdport.training_model(network, loss="mse")
    wdport.train(network_training, X, tmp_path / "run", targets=Y, epochs=1, batch_size=len(X) // 3 + 1,
                 optimizer=Adam([{}], gradient_accumulation_steps=2), callbacks=[watching])  # fmt: skip
    assert len(seen) == 3
    assert not all(map(np.array_equal, seen[0], seen[1]))
    assert all(map(np.array_equal, seen[1], network.get_weights()))


def power(targets: Any, outputs: Any, exponent: int) -> Any:
    return abs(targets - outputs) ** exponent


def distance(exponent: int) -> Callable[[Any, Any], Any]:
    return lambda targets, outputs: abs(targets - outputs) ** exponent


def other_power(targets: Any, outputs: Any, exponent: int) -> Any:
    return abs(outputs - targets) ** exponent + 1


def adamw(excluded: list[str] | None = None) -> Any:
    optimizer = keras.optimizers.AdamW()
    if excluded:
        optimizer.exclude_from_weight_decay(var_names=excluded)
    return optimizer


CHANGED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "activation": ({}, {"activation": "relu"}, "in network"),
    "rate": ({}, {"rate": 0.5}, "in network"),
    "epsilon of an optimizer": ({"make": keras.optimizers.Adam}, {"make": partial(keras.optimizers.Adam, epsilon=1)},
                                "optimizer epsilon 1e-07 instead of 1"),
    "weights without decay": ({"make": adamw}, {"make": partial(adamw, ["bias"])},
                              r"optimizer decayed None instead of \[.*\]"),
    "clipping": ({"make": partial(Adam, [{}])}, {"make": partial(Adam, [{}], clip_norm=0.5)},
                 "optimizer clip_norm None instead of 0.5"),
    "a schedule": ({"make": partial(Adam, [{}])}, {"make": partial(Adam, [{}], rates=[0.1] * 9)},
                   "in optimizer rates"),
    "one group": ({"make": partial(Adam, [{}, {}])}, {"make": partial(Adam, [{}])}, "in optimizer groups"),
    "another function": ({"loss": partial(power, exponent=2)}, {"loss": partial(other_power, exponent=2)},
                         "in code"),
    "another value": ({"loss": partial(power, exponent=2)}, {"loss": partial(power, exponent=4)}, "in code"),
    "another variable": ({"loss": distance(2)}, {"loss": distance(4)}, "in code"),
    "another object": ({"loss": keras.losses.Huber(reduction=None)}, {"loss": keras.losses.Huber(2.0, reduction=None)},
                       "in code"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGED)
def test_another_model_or_loss_is_another_run(name: str, tmp_path: Path) -> None:
    def run(**given: Any) -> list[float]:
        changes = {key: given.pop(key) for key in ("activation", "rate") if key in given}
        if "make" in given:
            given["optimizer"] = given.pop("make")()
        return trained(model(**changes), tmp_path / "run", **given)

    first, other, what = CHANGED[name]
    losses = run(**first)
    assert run(**first) == losses
    with pytest.raises(UsageError, match=rf"another run, (which differs|with) {what}[;, ]"):
        run(**other)


FACTOR = 1.0


def scaled_error(targets: Any, outputs: Any) -> Any:
    return FACTOR * (outputs - targets) ** 2


@keras.saving.register_keras_serializable("tests")
class Scaling(keras.Model):
    """Has a `call` without the argument `training`."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = layers.Dense(3)

    def call(self, x: Any) -> Any:
        return FACTOR * self.fc(x)


@keras.saving.register_keras_serializable("tests")
def scaled_tanh(x: Any) -> Any:
    return keras.ops.tanh(FACTOR * x)


OWN_CODE: dict[str, tuple[Callable[[], keras.Model], Any]] = {
    "of a loss": (model, scaled_error),
    "of a model": (Scaling, "mse"),
    "of an activation": (partial(model, activation=scaled_tanh), "mse"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", OWN_CODE)
def test_code_that_no_description_states_is_a_part_of_the_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, loss = OWN_CODE[name]

    def run(epochs: int) -> list[float]:
        keras.utils.set_random_seed(1)
        network = make()
        network(X[:1])
        return trained(network, tmp_path / "run", loss=loss, epochs=epochs)

    first = run(1)
    assert run(2)[:1] == first
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 4.0)
    with pytest.raises(UsageError, match="another run, which differs in code or mapping table, traced by JAX"):
        run(3)


def test_a_seed_of_train_precedes_that_of_the_training_model(tmp_path: Path) -> None:
    def run(folder: str, own: int, **given: int) -> list[float]:
        training = wdport.training_model(model(rate=0.5), loss="mse", seed=own)
        return wdport.train(training, X, tmp_path / folder, targets=Y, batch_size=8, **given).losses

    first = run("a", 1)
    assert run("b", 0, seed=1) == first != run("c", 0)
    with pytest.raises(UsageError, match="another run, with seed 1 instead of 2"):
        run("a", 2)


def test_the_identity_of_a_loss_has_no_address() -> None:
    for make in (lambda: keras.losses.Huber(reduction=None), lambda: partial(power, exponent=2)):
        assert " at 0x" not in name_of(make())
    assert name_of(keras.losses.Huber()).endswith(":Huber")


def test_optimizers_within_optimizers_resume(tmp_path: Path) -> None:
    def run(epochs: int, folder: str = "run") -> list[float]:
        optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(1e-2))
        return trained(model(), tmp_path / folder, optimizer=optimizer, epochs=epochs)

    assert run(2) == run(3)[:2]
    assert run(3) == run(3, "other")


def test_the_same_call_resumes_after_an_interruption(tmp_path: Path) -> None:
    class Interruption(keras.callbacks.Callback):  # type: ignore[misc]
        steps = 0

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.steps += 1
            if self.steps == 9:
                raise KeyboardInterrupt

    expected = trained(model(), tmp_path / "whole", save_every=4)
    training = wdport.training_model(model(), loss="mse")

    def run(*callbacks: Any) -> list[float]:
        return wdport.train(training, X, tmp_path / "run", targets=Y, epochs=2, batch_size=8, save_every=4,
                            callbacks=callbacks).losses  # fmt: skip

    with pytest.raises(KeyboardInterrupt, match="run the same command to resume"):
        run(Interruption())
    assert run() == expected


@pytest.mark.parametrize("layer", [
    lambda: layers.LSTM(4, dropout=0.2),
    lambda: layers.Bidirectional(layers.GRU(4, dropout=0.2, recurrent_dropout=0.1, unroll=True)),
], ids=["LSTM", "GRU"])  # fmt: skip
def test_recurrent_layers_with_dropout(layer: Callable[[], Any], tmp_path: Path) -> None:
    x = keras.Input((5, 2))
    network = keras.Model(x, layers.Dense(1)(layer()(x)))
    run = wdport.train(wdport.training_model(network, loss="mse"), SERIES, tmp_path / "run", targets=SERIES[:, 0, :1])
    assert np.isfinite(run.losses).all()
    assert np.isfinite(np.asarray(network(SERIES, training=True))).all()


def test_a_checkpoint_of_keras_is_the_network(tmp_path: Path) -> None:
    network, file = model(), tmp_path / "best.keras"
    trained(network, tmp_path / "run", callbacks=[keras.callbacks.ModelCheckpoint(file)])
    assert np.array_equal(keras.saving.load_model(file)(X), network(X))
