"""What a sampler needs of a diffusion model: pure functions of its weights, and facts about it.

A :class:`Network` is a Keras model, called with weights that are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any
from weakref import ref

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array as Tensor
from numpy.typing import DTypeLike

from wdport.base.errors import UsageError
from wdport.base.shared_types import POLICIES
from wdport.families.registry import known_model
from wdport.models.interface import Array, Configuration, Diffused, KerasModel, KerasVariable
from wdport.uses.diffusion.process import Process
from wdport.uses.diffusion.run_plan import Change
from wdport.uses.roles import Sampled, Tree


@dataclass(frozen=True, eq=False)
class Network:
    """A model for the scan.

    ``apply(weights, state (B, *shape), times (B,), condition (B, ...))`` is the prediction (B, *shape), with the
    condition None for a network that is called without one. ``finish(weights, state)`` returns the last state and its
    decoded form, None if states are not decoded. Both are free of side effects. ``weights()`` are the current weights.
    ``process()`` is what the checkpoint was trained to undo. ``dtype`` is the dtype of the state, ``about`` the
    family's description of it. ``change(weights, clean)``, if given, changes the network's estimate of the clean state
    at every step. ``specs()``, if given, are the weights' shapes and dtypes, available before the weights, so that
    programs can be compiled while these are loaded.
    """

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


Known = tuple[Sampled, Configuration]
"""The family of a model, and its configuration."""


def stored_network(family: object, config: object, variables: dict[str, Array], dtype: str = "float32") -> Network:
    """The :func:`keras_network` of a model with these variables (float32, by path).

    ``variables`` is emptied when the weights are made from it, so that memory holds them once. ``dtype`` is a Keras
    dtype policy of :data:`POLICIES`; float64 under JAX x64. Raises :class:`UsageError` for a model that is not a
    diffusion model.
    """
    if not isinstance(family, Sampled):
        what = f"a {getattr(family, 'name', type(family).__name__)} is not a diffusion model"
        raise UsageError("model", what, "give a model that wdport convert wrote")
    _require_sampled(family, config)
    held = jnp.dtype(POLICIES[dtype][1])
    process, shapes = _process(family, config, variables), {path: array.shape for path, array in variables.items()}
    with jax.enable_x64(True) if dtype == "float64" else nullcontext():
        model = family.build(config, dtype)
    arrays: list[Tree] = []

    def weights() -> Tree:
        if not arrays:
            # Variables are float32 in the file, and rounded here to what the policy holds.
            arrays.append(values_from(model, lambda path: jax.device_put(np.asarray(variables.pop(path), held))))
        return arrays[0]

    return replace(
        keras_network(model, (family, config)),
        weights=weights,
        process=lambda: process,
        # Of the state, which stays in float32 under a 16-bit policy.
        dtype="float64" if dtype == "float64" else "float32",
        specs=lambda: values_from(model, lambda path: spec(shapes[path], held)),
    )


def values_from(model: KerasModel, of_path: Callable[[str], Any]) -> tuple[list[Any], list[Any]]:
    """What ``of_path`` gives for the variables of a model, in the two groups of ``stateless_call``."""
    from wdport.models.keras_runtime import variables_by_path

    paths = {id(variable): path for path, variable in variables_by_path(model).items()}

    def value(variable: KerasVariable) -> Any:
        # Seeds of random generators, which nothing reads here, have no path.
        path = paths.get(id(variable))
        return np.asarray(variable.value) if path is None else of_path(path)

    return [value(v) for v in model.trainable_variables], [value(v) for v in model.non_trainable_variables]


def spec(shape: Iterable[object], dtype: DTypeLike) -> jax.ShapeDtypeStruct:
    """An array's shape and dtype, to compile or export programs without the array."""
    return jax.ShapeDtypeStruct(tuple(shape), dtype)


def keras_network(model: KerasModel, known_values: Known | None = None) -> Network:
    """The network of an unmodified Keras model; raises :class:`UsageError` for another model without ``known_values``.

    The model itself is held weakly, so that a compiled program does not keep its weights in memory.
    """
    from wdport.compare.probe import stateless
    from wdport.models.keras_runtime import exact_float64, variable_values

    role, config = known_values or _role_and_config(model)
    model_ref, exact = ref(model), model.compute_dtype == "float64"

    def apply(weights: Tree, state: Tensor, times: Tensor, condition: Tensor | None = None) -> Tensor:
        trained, others = weights
        inputs = [state, times] if condition is None else [state, times, condition]
        with exact_float64() if exact else nullcontext():
            result: Any = stateless(_alive(model_ref), trained, others, tuple(inputs))
        output: Tensor = result[0] if isinstance(result, (list, tuple)) else result
        return output.astype(state.dtype)

    def process() -> Process:
        return _process(role, config, {v.path: v.value for v in _alive(model_ref).non_trainable_variables})

    return Network(
        apply=apply,
        finish=lambda _, state: (state, role.to_series(config, state)),
        weights=lambda: variable_values(_alive(model_ref)),
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
