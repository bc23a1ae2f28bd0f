"""What a layer's ``get_config`` leaves out is found in the model that Keras builds from the file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np
import pytest
from keras import layers, ops

from wdport.compare.findings import Finding
from wdport.families.user_functions import build_keras, saved_model
from wdport.parity.saved_model import differences
from wdport.recording.input_text import parse_input

gelu = keras.activations.gelu


def tanh_gelu(x: Any) -> Any:
    return gelu(x, approximate=True)


def same_gelu(x: Any) -> Any:
    return x * (0.5 * (1.0 + ops.erf(x / 2.0**0.5)))


class Scaled:
    """A callable object."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def __call__(self, x: Any) -> Any:
        return x * self.scale


def scaling(scale: float) -> Callable[[Any], Any]:
    return lambda x: x * scale


def traced_table(values: Any) -> Callable[[Any], Any]:
    """Holds an array, in a program that another one calls."""
    return jax.jit(lambda x: x + ops.sum(ops.convert_to_tensor(np.asarray(values, np.float32))))


def computed_outside(scale: float) -> Callable[[Any], Any]:
    def call(x: Any) -> Any:
        return jax.pure_callback(lambda y: np.asarray(y * scale, y.dtype), jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    return call


@keras.saving.register_keras_serializable("tests")
class Forgetful(layers.Layer):
    """Has something else without ``given``, which its configuration does not have; ``rule`` says where it matters."""

    def __init__(self, rule: str = "act", given: Any = None, **options: Any) -> None:
        super().__init__(**options)
        self.rule, self._given, self.supports_masking = rule, given, True
        self.a, self.b = layers.Dense(8, name="a"), layers.Dense(8, name="b")

    def build(self, shape: Any) -> None:
        self.a.build(shape)
        self.b.build(shape)

    def call(self, x: Any, mask: Any = None, training: bool = False) -> Any:
        y = self.a(x)
        if self.rule == "act":
            y = (self._given or gelu)(y)
        elif self.rule == "epsilon":
            y = y * ops.rsqrt(ops.mean(y * y, -1, keepdims=True) + (self._given or 1e-6))
        elif self.rule == "limit":
            y = ops.minimum(y, self._given or 40.0)
        elif self.rule == "far limit":
            y = ops.minimum(y, self._given or 1e8)
        elif {"length": x.shape[1] == 6, "batch": x.shape[0] == 1, "training": training}.get(self.rule, False):
            y = y * (self._given or 1.0)
        elif self.rule == "dropout" and training:
            y = keras.random.dropout(y, self._given or 0.1)
        elif self.rule == "penalty" and training:
            self.add_loss((self._given or 1.0) * ops.mean(y * y))
        elif self.rule == "mask" and mask is not None:
            y = ops.where(mask[..., None], y, self._given or 0.0)
        return x + self.b(y)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "rule": self.rule}


def port(rule: str = "act", given: Any = None, mask: bool = False) -> keras.Model:
    x = keras.Input((None, 8))
    inputs = [x, keras.Input((None,), dtype="bool")] if mask else x
    feed = Forgetful(rule, given, name="feed")
    y = feed(x, mask=inputs[1]) if mask else feed(x)
    return keras.Model(inputs, [layers.Dense(2, name="head")(y), y[:, 0]])


@keras.saving.register_keras_serializable("tests")
class Whole(keras.Model):
    """A model of its own class with two inputs, the second optional, that forgets an argument."""

    def __init__(self, scale: float = 1.0, **options: Any) -> None:
        super().__init__(**options)
        self._scale, self.out = scale, layers.Dense(2, name="out")
        self.out.build((None, 8))

    def build(self, *_: Any) -> None:
        self.built = True

    def call(self, x: Any, more: Any = None) -> Any:
        return self.out(x if more is None else x + self._scale * more)

    def get_config(self) -> dict[str, Any]:
        return {}


@keras.saving.register_keras_serializable("tests")
class Unbuildable(Whole):
    def __init__(self, scale: float, **options: Any) -> None:
        super().__init__(scale, **options)


@keras.saving.register_keras_serializable("tests")
class Renamed(layers.Layer):
    """Keras stores its argument by itself, and not its name."""

    def __init__(self, width: int, **options: Any) -> None:
        super().__init__(**options)
        self.inner = layers.Dense(width, name="inner")

    def build(self, shape: Any) -> None:
        self.inner.build(shape)

    def call(self, x: Any) -> Any:
        return self.inner(x)


def renamed(given: Any = None) -> keras.Model:
    x = keras.Input((None, 8))
    return keras.Model(x, Forgetful("act", given, name="feed")(Renamed(8, name="first")(x)))


def whole(scale: float = 1.0, cls: type[Whole] = Whole) -> keras.Model:
    model = cls(scale)
    model.build(None)
    return model


PLAIN, MASKED, PAIR = ["x: b n=4 8"], ["x: b n=4 8", "mask: b n=4, mask"], ["x: b n=4 8", "more: b n=4 8"]
FAIL = ("outputs of the model that keras.saving.load_model builds from the file", True)
NOTE = ("without an effect", False)
CASES: dict[str, tuple[Callable[[], keras.Model], list[str], tuple[str, bool] | None]] = {
    "equal": (port, PLAIN, None),
    "an equal function of another name": (partial(port, "act", same_gelu), PLAIN, NOTE),
    "an equal closure": (partial(port, "act", scaling(0.5)), PLAIN, FAIL),
    "a similar function": (partial(port, "act", tanh_gelu), PLAIN, FAIL),
    "a lambda": (partial(port, "act", lambda x: gelu(x, approximate=True)), PLAIN, FAIL),
    "an object": (partial(port, "act", Scaled(0.3)), PLAIN, FAIL),
    "an array in a function": (partial(port, "act", traced_table([1.0, 2.0])), PLAIN, FAIL),
    "a function of NumPy": (partial(port, "act", computed_outside(0.3)), PLAIN, FAIL),
    "an epsilon": (partial(port, "epsilon", 1.1e-6), PLAIN, FAIL),
    "a limit that large values reach": (partial(port, "limit", 60.0), PLAIN, FAIL),
    "a limit that no value reaches": (partial(port, "far limit", 1e9), PLAIN, NOTE),
    "long inputs": (partial(port, "length", 2.0), PLAIN, FAIL),
    "a batch of one": (partial(port, "batch", 2.0), PLAIN, FAIL),
    "training mode": (partial(port, "training", 2.0), PLAIN, FAIL),
    "a rate of dropout": (partial(port, "dropout", 0.2), PLAIN, FAIL),
    "equal random numbers": (partial(port, "dropout"), PLAIN, None),
    "a penalty": (partial(port, "penalty", 2.0), PLAIN, FAIL),
    "a mask": (partial(port, "mask", -1.0, True), MASKED, FAIL),
    "nothing in use": (partial(port, "none", 2.0), PLAIN, NOTE),
    "an optional input": (partial(whole, 2.0), PAIR, FAIL),
    "an equal model of two inputs": (whole, PAIR, None),
    "a layer of another name": (renamed, PLAIN, None),
    "a function after a layer of another name": (partial(renamed, tanh_gelu), PLAIN, FAIL),
    "a model that Keras does not build": (partial(whole, cls=Unbuildable, scale=1.0), PAIR, ("does not build", False)),
}


def found(build: Callable[[], keras.Model], stated: list[str], folder: Path, monkeypatch: Any) -> list[Finding]:
    """The findings on a model with random weights in a file that Keras has written."""
    monkeypatch.setattr(f"{__name__}.chosen", build, raising=False)
    inputs = [parse_input(text) for text in stated]
    models = {}
    for dtype in ("float64", "float32"):
        with jax.enable_x64(dtype == "float64"):
            models[dtype] = build_keras(f"{__name__}:chosen", {}, dtype, inputs)
            for seed, variable in enumerate(models[dtype].trainable_variables):
                variable.assign(np.random.default_rng(seed).standard_normal(variable.shape).astype(variable.dtype))
    models["float32"].save(folder / "own.keras")
    random = np.random.default_rng(0)
    cases = []
    for batch, length, scale in ((4, 4, 1.0), (1, 6, 1.0), (4, 4, 50.0)):
        x = scale * random.standard_normal((batch, length, 8))
        second = {"mask": random.random((batch, length)) > 0.5, "more": random.standard_normal(x.shape)}
        cases.append((x, *(second[spec.name] for spec in inputs[1:])))
    return list(differences(folder / "own.keras", models, [*cases, *([cases[0][:1]] if stated == PAIR else [])]))


@pytest.mark.parametrize("name", CASES)
def test_what_get_config_leaves_out_is_found(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build, stated, expected = CASES[name]
    findings = found(build, stated, tmp_path, monkeypatch)
    text = "\n".join(map(str, findings))
    assert any(finding.kind != "notice" for finding in findings) == (expected is not None and expected[1]), text
    assert (expected[0] in text) if expected else not findings, text


def test_the_layer_and_what_it_forgets_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (finding,) = found(partial(port, "act", tanh_gelu), PLAIN, tmp_path, monkeypatch)
    assert "first in feed, whose get_config does not keep _given" in str(finding)


@pytest.mark.parametrize(("function", "equal"), [(same_gelu, True), (tanh_gelu, False)])
def test_a_model_that_builds_in_float32_alone_is_compared(
    function: Any, equal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(path: Path, dtype: str) -> keras.Model:
        if dtype == "float64":
            raise TypeError("float32 alone")
        return saved_model(path, dtype)

    monkeypatch.setattr("wdport.parity.saved_model.saved_model", build)
    (finding,) = found(partial(port, "act", function), PLAIN, tmp_path, monkeypatch)
    assert ("times the float32 error of your model" in str(finding)) != equal
