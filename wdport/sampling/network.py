"""A diffusion model in, what a sampler needs of it out: pure functions of its weights, and the facts around them.

The plain Keras model is one way to make a :class:`Network`; whatever computes the same sooner is another.
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

from wdport.compile_cache import fast_compile
from wdport.diffusion.process import Process
from wdport.diffusion.scan import Change
from wdport.dtype_policies import POLICIES
from wdport.errors import UsageError
from wdport.families.registry import family_of_model
from wdport.families.roles import Denoiser, Sampled, Tree
from wdport.limits import MAX_PAD_WIDTHS
from wdport.model import Array, Configuration, Diffused, KerasModel


@dataclass(frozen=True, eq=False)
class Network:
    """A denoiser for the scan.

    ``conditions(weights, times (S,))`` is all that depends on the steps alone, arrays with S in front, and
    ``apply(weights, state (B, *shape), condition, labels (B,))`` the prediction (B, *shape) with one step's part of it;
    labels are None for a network without classes.
    ``finish(weights, state)`` takes the last state to itself and what it is decoded to, None where it is not. All
    are free of side effects. ``weights(batch)`` are the present ones, as they are fastest for so many samples per call,
    or for any number of them (None); they serve every batch. ``process()`` is what the checkpoint was trained to undo.
    ``dtype`` is that of the state, ``about`` what the family says of it. ``change(weights, clean)``, if there is one,
    is what is made of the network's idea of the clean state at every step. ``specs(batch)``, where there is such a
    thing, are the weights' shapes and dtypes, known before they are there, so that programs can be compiled
    meanwhile.
    """

    conditions: Callable[[Tree, Tensor], Tree]
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
        """Of one sample's state."""
        return self.about.shape

    def changing(self, weights: Tree) -> Change | None:
        """:attr:`change` with these weights."""
        change = self.change
        return None if change is None else lambda clean: change(weights, clean)

    def at(self, weights: Tree, state: Tensor, times: Tensor, labels: Tensor | None = None) -> Tensor:
        """The prediction where all samples have one time: ``times`` (B,) is that, repeated."""
        condition = jax.tree.map(lambda leaf: leaf[0], self.conditions(weights, times[:1]))
        return self.apply(weights, state, condition, labels)


Known = tuple[Sampled, Configuration]
"""The family of a model, and its configuration."""


def fast_network(model: KerasModel, pad_widths: int = 1, known: Known | None = None) -> Network:
    """The same function as :func:`keras_network`'s with nothing computed twice.

    ``pad_widths`` fills its widths up with zeros to a multiple; raises :class:`UsageError` for an impossible one.
    """
    from wdport.keras_runtime import variables_by_path

    plain = keras_network(model, known)
    _require_widths(pad_widths)
    role, config = known or _known(model)
    own, denoiser = ref(model), role.denoiser(config, model.compute_dtype, pad_widths)
    arranged = _Arranged(denoiser)
    before: dict[str, Tensor] = {}
    alone = Lock()

    def variables() -> dict[str, Tensor]:
        found = variables_by_path(_alive(own))
        return {path: v.value for path, v in found.items() if not path.startswith(role.tables)}

    def weights(batch: int | None = None) -> Tree:
        with alone:  # several threads may compare one port
            present = variables()
            if any(value is not before.get(path) for path, value in present.items()):
                arranged.make(present, batch)
                before.update(present)
            return arranged.weights(batch)

    def specs(batch: int | None = None) -> Tree:
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
    family: object, config: object, variables: dict[str, Array], dtype: str = "float32", pad_widths: int = 1
) -> Network:
    """What :func:`fast_network` makes of the model with these variables (float32, by path), without Keras.

    ``variables`` are emptied when the weights are made of them, so that memory holds them once. ``dtype`` is a Keras
    dtype policy of :data:`POLICIES`; float64 under JAX x64. Raises :class:`UsageError` for a model that is no
    diffusion model.
    """
    _require_widths(pad_widths)
    if not isinstance(family, Sampled):
        what = f"a {getattr(family, 'name', type(family).__name__)} is no diffusion model"
        raise UsageError("model", what, "give what wdport convert wrote")
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
            arranged.make({path: jax.device_put(np.asarray(variables[path], held)) for path in trained}, batch)
            variables.clear()
        return arranged.weights(batch)

    return Network(
        conditions=denoiser.conditions,
        apply=denoiser.predict,
        finish=lambda _, state: (state, role.to_series(config, state)),
        weights=weights,
        process=lambda: process,
        dtype="float64" if dtype == "float64" else "float32",
        about=role.diffused(config),
        change=_clipping(role.diffused(config)),
        specs=lambda batch=None: arranged.specs(shapes, batch),
    )


def spec(shape: Iterable[object], dtype: DTypeLike) -> jax.ShapeDtypeStruct:
    """An array's shape and dtype, for programs that are compiled or exported without it."""
    return jax.ShapeDtypeStruct(tuple(shape), dtype)  # type: ignore[no-untyped-call]


class _Arranged:
    """A denoiser's weights, arranged once, and laid out anew where another batch is better off so."""

    def __init__(self, denoiser: Denoiser) -> None:
        self._best = denoiser.by_outputs
        self._arrange, self._lay_out = _once(denoiser.arrange), _once(denoiser.lay_out)
        self._kept: Tree = None
        self._lies: bool | None = None

    def make(self, variables: Mapping[str, Tensor], batch: int | None) -> None:
        self._kept = None  # memory holds them once
        self._lies = self._best(batch)
        self._kept = self._arrange(variables, self._lies)

    def weights(self, batch: int | None) -> Tree:
        if self._lies != (best := self._best(batch)):
            self._kept, self._lies = self._lay_out(self._kept, best), best
        return self._kept

    def specs(self, shapes: Tree, batch: int | None) -> Tree:
        return self._arrange.eval_shape(shapes, self._best(batch))


def _once(arrange: Callable[..., Tree]) -> Any:
    """Compiled for a single run; how weights lie is its second argument."""
    options = fast_compile() if jax.default_backend() == "cpu" else None
    return jax.jit(arrange, static_argnums=1, compiler_options=options)


def _require_widths(pad_widths: int) -> None:
    if (
        isinstance(pad_widths, bool)
        or not isinstance(pad_widths, (int, np.integer))
        or not (1 <= pad_widths <= MAX_PAD_WIDTHS)
    ):
        fix = f"give 1 to {MAX_PAD_WIDTHS}, such as 128 or 256"
        raise UsageError("pad_widths", f"{str(pad_widths)[:20]} is no width", fix)


def keras_network(model: KerasModel, known: Known | None = None) -> Network:
    """A Keras model as it stands; raises :class:`UsageError` for one that is none of ours and not ``known``.

    The model itself is held weakly, so that a compiled program does not keep its weights in memory.
    """
    role, config = known or _known(model)
    own = ref(model)

    def apply(weights: Tree, state: Tensor, time: Tensor, labels: Tensor | None = None) -> Tensor:
        every = jnp.broadcast_to(time, state.shape[:1])
        inputs = (state, every) if labels is None else (state, every, labels)
        output: Tensor = _alive(own).stateless_call(*weights, inputs, training=False)[0]
        return output

    def weights(_: int | None = None) -> Tree:
        alive = _alive(own)
        return [v.value for v in alive.trainable_variables], [v.value for v in alive.non_trainable_variables]

    def process() -> Process:
        return _process(role, config, {v.path: v.value for v in _alive(own).non_trainable_variables})

    return Network(
        conditions=lambda _, times: times,
        apply=apply,
        finish=lambda _, state: (state, role.to_series(config, state)),
        weights=weights,
        process=process,
        dtype="float64" if model.variable_dtype == "float64" else "float32",
        about=role.diffused(config),
        change=_clipping(role.diffused(config)),
    )


def _known(model: KerasModel) -> Known:
    family = family_of_model(model)
    if not isinstance(family, Sampled):
        what = f"a {type(model).__name__} is no diffusion model"
        raise UsageError("model", what, "give what wdport.load_model returns")
    _require_sampled(family, model.config)
    return family, model.config


def _require_sampled(family: Sampled, config: Configuration) -> None:
    if why := family.unsampled(config):
        raise UsageError("model", f"does not sample: {why}", "call it as it is")


def _process(role: Sampled, config: Configuration, variables: Mapping[str, Array | Tensor]) -> Process:
    """With the tables that a model holds, which are the checkpoint's own."""
    return role.process(config, lambda name: np.asarray(variables[name.replace(".", "/")]))


def _clipping(about: Diffused) -> Callable[[Tree, Tensor], Tensor] | None:
    limit = about.clip
    return None if limit is None else lambda _, clean: jnp.clip(clean, -limit, limit)


def _alive(own: ref[KerasModel]) -> KerasModel:
    model = own()
    if model is None:
        raise UsageError("model", "was deleted before its sampler", "keep the model while you sample")
    return model
