"""`wdport.export`: export a model to one file that a single-module loader runs with jax."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

import jax

from wdport.base.errors import UsageError
from wdport.base.options import COUNT, require_within
from wdport.base.version import VERSION
from wdport.families.registry import known_model
from wdport.files.model_target import Target
from wdport.models.interface import Array, Condition, Configuration, Function, KerasModel, NotDecoded
from wdport.uses.diffusion.plans import SamplingPlan
from wdport.uses.exporting.artifact import export_target, write_artifact
from wdport.uses.exporting.lowering import (
    Lowering,
    described,
    draws_samples,
    functions_of_model,
    lower_denoiser,
    lower_functions,
    lower_sampler,
    values_of,
)
from wdport.uses.sampling.network import Network
from wdport.uses.sampling.sampler import plan_of, programs_of

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
PRECISIONS = ("highest", "default")
NETWORK = "network"
KINDS = ("denoiser", "sampler", NETWORK)


@dataclass(frozen=True)
class Order:
    """The settings of an export: see :func:`export`."""

    what: str = "denoiser"
    platforms: Iterable[str] = ("cpu",)
    batch: int | None = None
    sampler: str | None = None
    steps: int | None = None
    eta: float = 0.0
    spacing: str | None = None
    precision: str = "highest"
    sizes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Exported:
    """A finished artifact: its path, its size in bytes, and the ``facts`` that its loader returns.

    ``state`` and ``decoded`` are the family's names and the shapes of one sample's arrays; None for a network, and
    ``decoded`` also if the model does not decode.
    """

    path: Path
    size: int
    facts: dict[str, object]
    platforms: tuple[str, ...]
    plan: SamplingPlan | None = None
    state: tuple[str, tuple[int, ...]] | None = None
    decoded: tuple[str, tuple[int, ...]] | None = None


def export(
    model: KerasModel,
    path: str | PathLike[str],
    *,
    what: str | None = None,
    platforms: Iterable[str] = ("cpu",),
    batch: int | None = None,
    sizes: Mapping[str, int] | None = None,
    inputs: Sequence[str] = (),
    sampler: str | None = None,
    steps: int | None = None,
    eta: float = 0.0,
    spacing: str | None = None,
    precision: str = "highest",
    force: bool = False,
) -> Exported:
    """Write a model, its denoiser or a whole sampler as StableHLO with weights, for `wdport/uses/exporting/loader.py`.

    Args:
        model: a model that :func:`wdport.load_model` returns, or any Keras model; the artifact has its
            dtype.
        path: output file, ``NAME.stablehlo``.
        what: "network" maps the model's inputs to its outputs (an autoencoder is exported as two functions, "encode"
            and "decode"); "denoiser" maps (state (b, *shape), time (b,)) to the prediction; "sampler" maps (seed,
            indices (b,)), or x_T with recorded noise, to states and their decoded values. None is "denoiser" for models
            that draw samples, and "network" for others.
        platforms: some of :data:`PLATFORMS`; this machine need not have any of them.
        batch: a fixed number of samples; any number if None.
        sizes: fixed values of other sizes that may differ between calls, such as ``{"n": 512}``, only for "network".
        inputs: the inputs of your own Keras model, with the axes in the model's order, such as ``("x: b 48 48 3",)``;
            those of a functional model are known.
        sampler: as in :func:`wdport.sample`, only for "sampler".
        steps: as in :func:`wdport.sample`, only for "sampler".
        eta: as in :func:`wdport.sample`, only for "sampler".
        spacing: as in :func:`wdport.sample`, only for "sampler".
        precision: precision of float32 products: "highest", or "default", which rounds their inputs to fewer bits on a
            TPU and possibly on a GPU. On a CPU both are the same.
        force: replace an existing file.

    Returns:
        The artifact that was written: its ``path``, ``size`` and ``facts``.

    Raises:
        UsageError: an argument is invalid, the model cannot be exported in this form, or the file exists.
        MachineError: writing fails, or flatbuffers is not installed.
    """
    what = what or ("denoiser" if draws_samples(model) else NETWORK)
    order = Order(what, platforms, batch, sampler, steps, eta, spacing, precision, sizes or {})
    if order.what != NETWORK:
        if inputs:
            raise UsageError("inputs", "are for a network", "leave them out, or add what='network'")
        target = export_target(Path(path), force=force, option=None)
        network, (_, config) = programs_of(model).network, known_model(model) or (None, None)
        return export_network(network, model.compute_dtype, config, target, order)
    functions, config = functions_of_model(model, inputs)
    target = export_target(Path(path), force=force, option=None)
    return export_functions(functions, values_of(model), model.compute_dtype, config, target, order)


def export_functions(
    functions: Mapping[str, Function], values: Mapping[str, Array], compute_dtype: str,
    config: Mapping[str, object], target: Target, order: Order,
) -> Exported:  # fmt: skip
    """Export functions of these values, as :func:`export` does; ``config`` is the model's, as JSON values."""
    _require_no_sampler("network", order)
    lowering = _lowering(order)
    dtype = "float64" if any(str(array.dtype) == "float64" for array in values.values()) else "float32"
    lowered = lower_functions(functions, values, dtype, lowering)
    facts: dict[str, object] = {
        "what": order.what,
        **_provenance(lowering),
        "dtype": dtype,
        "precision": lowering.precision,
        "compute_dtype": compute_dtype,
        "model": dict(config),
        "programs": described(functions, lowering, lowered, dtype),
    }
    size = write_artifact(target, facts, lowered.programs, lowered.arrays)
    return Exported(target.path, size, facts, lowering.platforms)


def export_network(
    network: Network, compute_dtype: str, config: Configuration, target: Target, order: Order
) -> Exported:
    """Export a network that computes in ``compute_dtype``, as :func:`export` does; ``config`` is its model's."""
    lowering = _lowering(order)
    if order.sizes:
        raise UsageError("sizes", "are for a network", "leave them out, or export a network")
    plan, sampler = None, {}
    if _one_of("what", order.what, KINDS) == "denoiser":
        _require_no_sampler("denoiser", order)
        lowered = lower_denoiser(network, lowering)
    else:
        plan = plan_of(network, order.sampler, order.steps, order.eta, spacing=order.spacing)
        sampler = {"sampler": _plan_facts(plan, order)}
        lowered = lower_sampler(network, plan, lowering)
    model_facts = {"compute_dtype": compute_dtype, "model": config.to_dict()}
    facts = {"what": order.what, **_facts(network, lowering), **model_facts, **sampler}
    size, about = write_artifact(target, facts, lowered.programs, lowered.arrays), network.about
    decoded = None if isinstance(about.decoding, NotDecoded) else (about.decoded.name, about.decoding.shape)
    return Exported(target.path, size, facts, lowering.platforms, plan, (about.state.name, about.shape), decoded)


def _require_no_sampler(what: str, order: Order) -> None:
    if order.sampler is not None or order.steps is not None or order.eta or order.spacing is not None:
        fix = "leave out sampler, steps, eta and spacing, or export a sampler"
        raise UsageError("sampler", f"a {what} has none", fix)


def _lowering(order: Order) -> Lowering:
    require_within(COUNT, batch=order.batch)
    return Lowering(checked_platforms(order.platforms), None if order.batch is None else int(order.batch),
                    _one_of("precision", order.precision, PRECISIONS), order.sizes)  # fmt: skip


def checked_platforms(platforms: Iterable[str]) -> tuple[str, ...]:
    """Return platform names without duplicates; raises :class:`UsageError` for unknown ones or none."""
    # dict.fromkeys keeps the order, which is that of the code in the program.
    names = tuple(dict.fromkeys([platforms] if isinstance(platforms, str) else platforms))
    for name in names or ("",):
        if name not in PLATFORMS:
            raise UsageError("platforms", f"unknown platform {name!r}", f"give some of {', '.join(PLATFORMS)}")
    return names


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise UsageError(name, f"{value!r} is unknown", f"give {', '.join(choices[:-1])} or {choices[-1]}")
    return value


def _facts(network: Network, lowering: Lowering) -> dict[str, object]:
    """Return the artifact's facts about its programs, as JSON values."""
    return {
        **_provenance(lowering),
        **network.about.sizes,
        "dtype": network.dtype,
        "precision": lowering.precision,
        **condition_facts(network.about.condition),
        "target": network.process().target,
    }


def condition_facts(condition: Condition | None) -> dict[str, object]:
    """Return what an artifact states of its conditioning input; nothing if its programs take none."""
    if condition is None or not condition.taken:
        return {}
    classes = {} if condition.classes is None else {"classes": condition.classes}
    return {**classes, "condition": {"name": condition.name, "kind": condition.kind, "shape": list(condition.shape)}}


def _provenance(lowering: Lowering) -> dict[str, object]:
    """Return the versions that made the artifact, and its targets."""
    return {"wdport": VERSION, "jax": jax.__version__, "platforms": list(lowering.platforms), "batch": lowering.batch}


def _plan_facts(plan: SamplingPlan, order: Order) -> dict[str, object]:
    """Return the requested settings, from which a verification makes its own plan, and the steps of this plan."""
    # The request and not the plan: a verification plans it anew, so a file with another sampler fails.
    asked = {"name": order.sampler or plan.sampler, "eta": float(order.eta), "count": order.steps,
             "spacing": order.spacing}  # fmt: skip
    return {**asked, "steps": plan.steps.tolist(), "slots": plan.slots}
