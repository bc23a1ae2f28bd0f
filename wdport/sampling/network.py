"""A diffusion model in, what a sampler needs of it out: pure functions of its weights, and the facts around them.

The plain Keras model is one way to make a :class:`Network`; whatever computes the same sooner is another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any
from weakref import ref

import jax
import jax.numpy as jnp
import numpy as np

from wdport.compile_cache import fast_compile
from wdport.diffusion.plans import TARGETS
from wdport.diffusion.schedules import NoiseSchedule
from wdport.dtype_policies import POLICIES
from wdport.errors import UsageError
from wdport.model import Array, Family

Tensor = Any
Weights = Any
"""Arrays in any nesting: they are arguments of the compiled programs, so new values need no new program."""


@dataclass(frozen=True, eq=False)
class Network:
    """A denoiser for the scan.

    ``conditions(weights, times (S,))`` is all that depends on the steps alone, arrays with S in front, and
    ``apply(weights, state (B, C, F), condition)`` the prediction (B, C, F) with one step's part of it.
    ``finish(weights, state)`` takes the last state to the coefficients (B, C, F) and their series (B, N, F), None
    where the wavelet is not known. All are free of side effects. ``weights(batch)`` are the present ones, as they are
    fastest for so many samples per call, or for any number of them (None); they serve every batch. ``schedule()`` is
    the checkpoint's own noise schedule. ``shape`` is (C, F), ``dtype`` that of the state, ``target`` one of
    :data:`TARGETS`. ``specs(batch)``, where there is such a thing, are the weights' shapes and dtypes, known before
    they are there, so that programs can be compiled meanwhile.
    """

    conditions: Callable[[Weights, Tensor], Any]
    apply: Callable[[Weights, Tensor, Any], Tensor]
    finish: Callable[[Weights, Tensor], tuple[Tensor, Tensor | None]]
    weights: Callable[..., Weights]
    schedule: Callable[[], NoiseSchedule]
    shape: tuple[int, int]
    dtype: str
    target: str
    specs: Callable[..., Weights] | None = None

    def at(self, weights: Weights, state: Tensor, times: Tensor) -> Tensor:
        """The prediction where all samples have one time: ``times`` (B,) is that, repeated."""
        condition = jax.tree.map(lambda leaf: leaf[0], self.conditions(weights, times[:1]))
        return self.apply(weights, state, condition)


def fast_network(model: Any, pad_widths: int = 1) -> Network:
    """The same function as :func:`keras_network`'s with nothing computed twice, where the model has such a form.

    ``pad_widths`` fills its widths up with zeros to a multiple; raises :class:`UsageError` for an impossible one.
    """
    plain = keras_network(model)
    _require_widths(pad_widths)
    if not hasattr(model, "denoiser"):
        if pad_widths > 1:
            raise UsageError("pad_widths", "this model has no form with wider widths", "leave it out")
        return plain
    own, denoiser = ref(model), model.denoiser(pad_widths)
    arranged = _Arranged(denoiser)
    before: dict[str, Tensor] = {}

    def variables() -> dict[str, Tensor]:
        return {v.path: v.value for v in _alive(own).trainable_variables}

    def weights(batch: int | None = None) -> Weights:
        present = variables()
        if any(value is not before.get(path) for path, value in present.items()):
            before.update(present)
            arranged.make(present, batch)
        return arranged.weights(batch)

    def specs(batch: int | None = None) -> Weights:
        return arranged.specs(variables(), batch)

    # What is bound to devices, as under keras.distribution, compiles to another program than shapes alone tell.
    bound = any(getattr(v.value, "committed", True) for v in model.trainable_variables)
    return replace(
        plain,
        conditions=denoiser.conditions,
        apply=denoiser.predict,
        weights=weights,
        specs=None if bound else specs,
    )


def stored_network(
    family: Family, config: Any, variables: dict[str, Array], dtype: str = "float32", pad_widths: int = 1
) -> Network:
    """What :func:`fast_network` makes of the model with these variables (float32, by path), without Keras.

    ``variables`` are emptied when the weights are made of them, so that memory holds them once. ``dtype`` is a Keras
    dtype policy of :data:`POLICIES`; float64 under JAX x64. Raises :class:`UsageError` for a model that is no
    diffusion model.
    """
    _require_widths(pad_widths)
    if getattr(config, "prediction_target", None) not in TARGETS:
        raise UsageError("model", f"a {family.name} is no diffusion model", "give what wdport convert wrote")
    computing, held = map(jnp.dtype, POLICIES[dtype])
    denoiser = family.denoiser(config, computing.name, pad_widths)
    arranged = _Arranged(denoiser)
    schedule = NoiseSchedule(
        *(variables[f"noise_schedule/{name}"].astype(np.float64) for name in NoiseSchedule._fields)
    )
    trained = [path for path in variables if not path.startswith("noise_schedule/")]
    shapes = {path: spec(variables[path].shape, held) for path in trained}

    def weights(batch: int | None = None) -> Weights:
        if variables:
            arranged.make({path: jax.device_put(np.asarray(variables[path], held)) for path in trained}, batch)
            variables.clear()
        return arranged.weights(batch)

    return Network(
        conditions=denoiser.conditions,
        apply=denoiser.predict,
        finish=lambda _, state: (state, family.to_series(config, state)),
        weights=weights,
        schedule=lambda: schedule,
        shape=(config.coefficients, config.features),
        dtype="float64" if dtype == "float64" else "float32",
        target=config.prediction_target,
        specs=lambda batch=None: arranged.specs(shapes, batch),
    )


def spec(shape: Iterable[Any], dtype: Any) -> Any:
    """An array's shape and dtype, for programs that are compiled or exported without it."""
    return jax.ShapeDtypeStruct(tuple(shape), dtype)  # type: ignore[no-untyped-call]


class _Arranged:
    """A denoiser's weights, arranged once, and laid out anew where another batch is better off so."""

    def __init__(self, denoiser: Any) -> None:
        self._best = denoiser.by_outputs
        self._arrange, self._lay_out = _once(denoiser.arrange), _once(denoiser.lay_out)
        self._kept: Weights = None
        self._lies: bool | None = None

    def make(self, variables: dict[str, Tensor], batch: int | None) -> None:
        self._kept = None  # memory holds them once
        self._lies = self._best(batch)
        self._kept = self._arrange(variables, self._lies)

    def weights(self, batch: int | None) -> Weights:
        if self._lies != (best := self._best(batch)):
            self._kept, self._lies = self._lay_out(self._kept, best), best
        return self._kept

    def specs(self, shapes: Any, batch: int | None) -> Weights:
        return self._arrange.eval_shape(shapes, self._best(batch))


def _once(arrange: Any) -> Any:
    """Compiled for a single run; how weights lie is its second argument."""
    options = fast_compile() if jax.default_backend() == "cpu" else None
    return jax.jit(arrange, static_argnums=1, compiler_options=options)


def _require_widths(pad_widths: int) -> None:
    if isinstance(pad_widths, bool) or not isinstance(pad_widths, (int, np.integer)) or pad_widths < 1:
        raise UsageError("pad_widths", f"{pad_widths!r} is no width", "give 1 or more, such as 128 or 256")


def keras_network(model: Any) -> Network:
    """A Keras model of ours as it stands; raises :class:`UsageError` for any other.

    The model itself is held weakly, so that a compiled program does not keep its weights in memory.
    """
    config: Any = getattr(model, "config", None)
    if getattr(config, "prediction_target", None) not in TARGETS or not hasattr(model, "noise_schedule"):
        what = f"a {type(model).__name__} is no diffusion model"
        raise UsageError("model", what, "give what wdport.load_model returns")
    own = ref(model)

    def apply(weights: Weights, state: Tensor, time: Tensor) -> Tensor:
        every = jnp.broadcast_to(time, state.shape[:1])
        output, _ = _alive(own).stateless_call(*weights, (state, every), training=False)
        return output

    def finish(weights: Weights, state: Tensor) -> tuple[Tensor, Tensor | None]:
        return state, _alive(own).to_series(state) if config.wavelet and config.seq_len else None

    def weights(_: int | None = None) -> Weights:
        alive = _alive(own)
        return [v.value for v in alive.trainable_variables], [v.value for v in alive.non_trainable_variables]

    return Network(
        conditions=lambda _, times: times,
        apply=apply,
        finish=finish,
        weights=weights,
        schedule=lambda: schedule_of(_alive(own)),
        shape=(config.coefficients, config.features),
        dtype="float64" if model.variable_dtype == "float64" else "float32",
        target=config.prediction_target,
    )


def schedule_of(model: Any) -> NoiseSchedule:
    """The noise schedule that a model holds, which is the checkpoint's own, in float64."""
    held = (getattr(model.noise_schedule, name).value for name in NoiseSchedule._fields)
    return NoiseSchedule(*(np.asarray(values).astype(np.float64) for values in held))


def _alive(own: ref[Any]) -> Any:
    model = own()
    if model is None:
        raise UsageError("model", "was deleted before its sampler", "keep the model while you sample")
    return model
