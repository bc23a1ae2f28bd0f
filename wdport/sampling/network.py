"""What a sampler needs of a diffusion model: pure functions of its weights, and facts about it.

A :class:`Network` is made from the plain Keras model, or from a faster equivalent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any
from weakref import ref

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array as Tensor
from numpy.typing import DTypeLike

from wdport.diffusion.process import Process
from wdport.diffusion.scan import Change
from wdport.errors import UsageError
from wdport.families.registry import known_model
from wdport.families.roles import Denoiser, Sampled, Tree
from wdport.jax_settings import fast_compile
from wdport.limits import MAX_PAD_WIDTHS
from wdport.model import Array, Configuration, Diffused, KerasModel
from wdport.shared_types import POLICIES


@dataclass(frozen=True, eq=False)
class Network:
    """A denoiser for the scan.

    ``embed(weights, times (S,))`` is everything that depends only on the steps, arrays with leading axis S, and
    ``apply(weights, state (B, *shape), embedded, condition (B, ...))`` the prediction (B, *shape), given one step's
    part of it; the condition is None for a network that is called without one. ``finish(weights, state)`` returns the
    last state and its decoded form, None if states are not decoded. All are free of side effects. ``weights(batch)``
    are the current weights, in the layout that is fastest for ``batch`` samples per call, or for any number (None);
    they work with every batch. ``process()`` is what the checkpoint was trained to undo. ``dtype`` is the dtype of the
    state, ``about`` the family's description of it. ``change(weights, clean)``, if given, changes the network's
    estimate of the clean state at every step. ``specs(batch)``, if given, are the weights' shapes and dtypes, available
    before the weights, so that programs can be compiled while these are loaded.
    """

    embed: Callable[[Tree, Tensor], Tree]
    apply: Callable[..., Tensor]
    finish: Callable[[Tree, Tensor], tuple[Tensor, Tensor | None]]
    weights: Callable[..., Tree]
    process: Callable[[], Process]
    dtype: str
    about: Diffused
    specs: Callable[..., Tree] | None = None
    change: Callable[[Tree, Tensor], Tensor] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample's state."""
        return self.about.shape

    def changing(self, weights: Tree) -> Change | None:
        """:attr:`change` with these weights."""
        change = self.change
        return None if change is None else lambda clean: change(weights, clean)

    def at(self, weights: Tree, state: Tensor, times: Tensor, condition: Tensor | None = None) -> Tensor:
        """The prediction for samples that share one time: ``times`` (B,) repeats it."""
        embedded = jax.tree.map(lambda leaf: leaf[0], self.embed(weights, times[:1]))
        return self.apply(weights, state, embedded, condition)


Known = tuple[Sampled, Configuration]
"""The family of a model, and its configuration."""


def fast_network(model: KerasModel, pad_widths: int = 1, known_values: Known | None = None) -> Network:
    """The function of :func:`keras_network`, with nothing computed twice.

    ``pad_widths`` pads its widths with zeros to a multiple; raises :class:`UsageError` for an invalid one.
    """
    from wdport.keras_runtime import variables_by_path

    plain = keras_network(model, known_values)
    _require_widths(pad_widths)
    role, config = known_values or _role_and_config(model)
    model_ref, denoiser = ref(model), role.denoiser(config, model.compute_dtype, pad_widths)
    arranged = _Arranged(denoiser)
    before: dict[str, Tensor] = {}
    lock = Lock()

    def variables() -> dict[str, Tensor]:
        by_path = variables_by_path(_alive(model_ref))
        # Tables are part of the process, which turns them into the numbers of a plan.
        return {path: v.value for path, v in by_path.items() if not path.startswith(role.tables)}

    def weights(batch: int | None = None) -> Tree:
        with lock:  # several threads may compare one port
            present = variables()
            # By identity: assigning to a Keras variable replaces its array.
            if any(value is not before.get(path) for path, value in present.items()):
                arranged.make(present, batch)
                before.update(present)
            return arranged.weights(batch)

    def specs(batch: int | None = None) -> Tree:
        return arranged.specs(variables(), batch)

    # Arrays bound to devices, as under keras.distribution, compile to another program than their shapes imply.
    bound = any(getattr(v.value, "committed", True) for v in model.trainable_variables)
    return replace(
        plain,
        embed=denoiser.embed,
        apply=denoiser.predict,
        weights=weights,
        specs=None if bound else specs,
    )


def stored_network(
    family: object, config: object, variables: dict[str, Array], dtype: str = "float32", pad_widths: int = 1
) -> Network:
    """The :func:`fast_network` of a model with these variables (float32, by path), without Keras.

    ``variables`` is emptied when the weights are made from it, so that memory holds them once. ``dtype`` is a Keras
    dtype policy of :data:`POLICIES`; float64 under JAX x64. Raises :class:`UsageError` for a model that is not a
    diffusion model.
    """
    _require_widths(pad_widths)
    if not isinstance(family, Sampled):
        what = f"a {getattr(family, 'name', type(family).__name__)} is not a diffusion model"
        raise UsageError("model", what, "give a model that wdport convert wrote")
    role = family
    _require_sampled(role, config)
    computing, held = map(jnp.dtype, POLICIES[dtype])
    denoiser = role.denoiser(config, computing.name, pad_widths)
    arranged = _Arranged(denoiser)
    process = _process(role, config, variables)
    trained = [path for path in variables if not path.startswith(role.tables)]
    shapes = {path: spec(variables[path].shape, held) for path in trained}

    def weights(batch: int | None = None) -> Tree:
        if variables:
            # Variables are float32 in the file, and rounded here to what the policy holds.
            arranged.make({path: jax.device_put(np.asarray(variables[path], held)) for path in trained}, batch)
            variables.clear()
        return arranged.weights(batch)

    return Network(
        embed=denoiser.embed,
        apply=denoiser.predict,
        finish=lambda _, state: (state, role.to_series(config, state)),
        weights=weights,
        process=lambda: process,
        # Of the state, which stays in float32 under a 16-bit policy.
        dtype="float64" if dtype == "float64" else "float32",
        about=role.diffused(config),
        change=_clipping(role.diffused(config)),
        specs=lambda batch=None: arranged.specs(shapes, batch),
    )


def spec(shape: Iterable[object], dtype: DTypeLike) -> jax.ShapeDtypeStruct:
    """An array's shape and dtype, to compile or export programs without the array."""
    return jax.ShapeDtypeStruct(tuple(shape), dtype)


class _Arranged:
    """A denoiser's weights, arranged once, and again where another batch size needs another layout."""

    def __init__(self, denoiser: Denoiser) -> None:
        self._best = denoiser.by_outputs
        self._arrange, self._lay_out = _once(denoiser.arrange), _once(denoiser.lay_out)
        self._arranged: Tree = None
        self._lies: bool | None = None

    def make(self, variables: Mapping[str, Tensor], batch: int | None) -> None:
        self._arranged = None  # memory holds them once
        self._lies = self._best(batch)
        self._arranged = self._arrange(variables, self._lies)

    def weights(self, batch: int | None) -> Tree:
        if self._lies != (best := self._best(batch)):
            self._arranged, self._lies = self._lay_out(self._arranged, best), best
        return self._arranged

    def specs(self, shapes: Tree, batch: int | None) -> Tree:
        return self._arrange.eval_shape(shapes, self._best(batch))


def _once(arrange: Callable[..., Tree]) -> Any:
    """``arrange``, compiled for a single run; its second argument is the layout of the weights."""
    # The program runs once, so the time to compile it counts more than its speed.
    options = fast_compile() if jax.default_backend() == "cpu" else None
    return jax.jit(arrange, static_argnums=1, compiler_options=options)


def _require_widths(pad_widths: int) -> None:
    if (
        isinstance(pad_widths, bool)
        or not isinstance(pad_widths, (int, np.integer))
        or not (1 <= pad_widths <= MAX_PAD_WIDTHS)
    ):
        fix = f"give 1 to {MAX_PAD_WIDTHS}, such as 128 or 256"
        raise UsageError("pad_widths", f"invalid width {str(pad_widths)[:20]}", fix)


def keras_network(model: KerasModel, known_values: Known | None = None) -> Network:
    """The network of an unmodified Keras model; raises :class:`UsageError` for another model without ``known_values``.

    The model itself is held weakly, so that a compiled program does not keep its weights in memory.
    """
    role, config = known_values or _role_and_config(model)
    model_ref = ref(model)

    def apply(weights: Tree, state: Tensor, time: Tensor, condition: Tensor | None = None) -> Tensor:
        # All samples of a step share one time; the Keras model takes one for each.
        every = jnp.broadcast_to(time, state.shape[:1])
        inputs = (state, every) if condition is None else (state, every, condition)
        output: Tensor = _alive(model_ref).stateless_call(*weights, inputs, training=False)[0]
        return output

    def weights(_: int | None = None) -> Tree:
        alive = _alive(model_ref)
        return [v.value for v in alive.trainable_variables], [v.value for v in alive.non_trainable_variables]

    def process() -> Process:
        return _process(role, config, {v.path: v.value for v in _alive(model_ref).non_trainable_variables})

    return Network(
        embed=lambda _, times: times,
        apply=apply,
        finish=lambda _, state: (state, role.to_series(config, state)),
        weights=weights,
        process=process,
        dtype="float64" if model.variable_dtype == "float64" else "float32",
        about=role.diffused(config),
        change=_clipping(role.diffused(config)),
    )


def _role_and_config(model: KerasModel) -> Known:
    family, config = known_model(model) or (None, None)
    if not isinstance(family, Sampled):
        what = f"a {type(model).__name__} is not a diffusion model"
        fix = "give what wdport.load_model returns, for your own model with its mapping table"
        raise UsageError("model", what, fix)
    _require_sampled(family, config)
    return family, config


def _require_sampled(family: Sampled, config: Configuration) -> None:
    if why := family.unsampled(config):
        raise UsageError("model", f"does not sample: {why}", "call the model directly")


def _process(role: Sampled, config: Configuration, variables: Mapping[str, Array | Tensor]) -> Process:
    """The process with the tables that the model holds, which come from the checkpoint."""
    return role.process(config, lambda name: np.asarray(variables[name.replace(".", "/")]))


def _clipping(about: Diffused) -> Callable[[Tree, Tensor], Tensor] | None:
    clip = about.clip
    return None if clip is None else lambda _, clean: clip.apply(clean, jnp)


def _alive(model_ref: ref[KerasModel]) -> KerasModel:
    model = model_ref()
    if model is None:
        raise UsageError("model", "was deleted before its sampler", "keep the model while you sample")
    return model
