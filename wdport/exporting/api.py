"""`wdport.export`: export a model to one file that a single-module loader runs with jax."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import jax
import numpy as np

from wdport.diffusion.plans import Plan
from wdport.errors import UsageError
from wdport.exporting.artefact import export_target, write_artefact
from wdport.exporting.lower import Lowering, lower_denoiser, lower_sampler
from wdport.files.target import Target
from wdport.model import Configuration, KerasModel, NotDecoded
from wdport.sampling.network import Network
from wdport.sampling.programs import programs_of
from wdport.sampling.sampler import plan_of
from wdport.version import VERSION

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
PRECISIONS = ("highest", "default")
KINDS = ("denoiser", "sampler")


@dataclass(frozen=True)
class Order:
    """The settings of an export: see :func:`export`."""

    what: str = "denoiser"
    platforms: Iterable[str] = ("cpu",)
    batch: int | None = None
    sampler: str | None = None
    steps: int | None = None
    eta: float = 0.0
    precision: str = "highest"
    pad_widths: int = 1


@dataclass(frozen=True)
class Exported:
    """A finished artefact: its path, its size in bytes, and the ``facts`` that its loader returns.

    ``state`` and ``decoded`` (None if the model does not decode) are the family's names and the shapes of one sample's
    arrays.
    """

    path: Path
    size: int
    facts: dict[str, object]
    platforms: tuple[str, ...]
    plan: Plan | None
    state: tuple[str, tuple[int, ...]]
    decoded: tuple[str, tuple[int, ...]] | None


def export(
    model: KerasModel,
    path: str | PathLike[str],
    *,
    what: str = "denoiser",
    platforms: Iterable[str] = ("cpu",),
    batch: int | None = None,
    sampler: str | None = None,
    steps: int | None = None,
    eta: float = 0.0,
    precision: str = "highest",
    pad_widths: int = 1,
    force: bool = False,
) -> Exported:
    """Write a model's denoiser, or a whole sampler, as StableHLO with weights, for `wdport/exporting/loader.py`.

    Args:
        model: a model that :func:`wdport.load_model` returns; the artefact has its dtype.
        path: output file, ``NAME.stablehlo``.
        what: "denoiser" maps (state (b, *shape), time (b,)) to the prediction; "sampler" maps (seed, indices (b,)), or
            x_T with a noise tape, to states and their decoded values.
        platforms: some of :data:`PLATFORMS`; this machine need not have any of them.
        batch: a fixed number of samples; any number if None.
        sampler: as in :func:`wdport.sample`, only for "sampler".
        steps: as in :func:`wdport.sample`, only for "sampler".
        eta: as in :func:`wdport.sample`, only for "sampler".
        precision: precision of float32 products: "highest", or "default", which rounds the factors to fewer bits on a
            TPU and possibly on a GPU. On a CPU both are the same.
        pad_widths: as in :func:`wdport.sample`.
        force: replace an existing file.

    Returns:
        The written artefact: its ``path``, ``size`` and ``facts``.

    Raises:
        UsageError: an argument is invalid, or the file exists.
        MachineError: writing fails, or flatbuffers is not installed.
    """
    order = Order(what, platforms, batch, sampler, steps, eta, precision, pad_widths)
    target = export_target(Path(path), force=force, option=None)
    return export_network(programs_of(model, pad_widths).network, model.compute_dtype, model.config, target, order)


def export_network(
    network: Network, compute_dtype: str, config: Configuration, target: Target, order: Order
) -> Exported:
    """Export a network that computes in ``compute_dtype``, as :func:`export` does; ``config`` is its model's."""
    lowering = Lowering(
        checked_platforms(order.platforms),
        _checked_batch(order.batch),
        _one_of("precision", order.precision, PRECISIONS),
    )
    plan, sampler = None, {}
    if _one_of("what", order.what, KINDS) == "denoiser":
        if order.sampler is not None or order.steps is not None or order.eta:
            raise UsageError("sampler", "a denoiser has none", "leave out sampler, steps and eta, or export a sampler")
        lowered = lower_denoiser(network, lowering)
    else:
        plan = plan_of(network, order.sampler, order.steps, order.eta)
        sampler = {"sampler": _plan_facts(plan)}
        lowered = lower_sampler(network, plan, lowering)
    told = {"compute_dtype": compute_dtype, "pad_widths": order.pad_widths, "model": config.to_dict()}
    facts = {"what": order.what, **_facts(network, lowering), **told, **sampler}
    size, about = write_artefact(target, facts, lowered.programs, lowered.arrays), network.about
    decoded = None if isinstance(about.decoding, NotDecoded) else (about.decoded.name, about.decoding.shape)
    return Exported(target.path, size, facts, lowering.platforms, plan, (about.state.name, about.shape), decoded)


def checked_platforms(platforms: Iterable[str]) -> tuple[str, ...]:
    """Return platform names without duplicates; raises :class:`UsageError` for unknown ones or none."""
    names = tuple(dict.fromkeys([platforms] if isinstance(platforms, str) else platforms))
    for name in names or ("",):
        if name not in PLATFORMS:
            raise UsageError("platforms", f"unknown platform {name!r}", f"give some of {', '.join(PLATFORMS)}")
    return names


def _checked_batch(batch: int | None) -> int | None:
    if batch is not None and (isinstance(batch, bool) or not isinstance(batch, (int, np.integer)) or batch < 1):
        raise UsageError("batch", f"invalid sample count {batch!r}", "give 1 or more, or leave it out for any number")
    return None if batch is None else int(batch)


def _one_of(name: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise UsageError(name, f"{value!r} is unknown", f"give {' or '.join(known)}")
    return value


def _facts(network: Network, lowering: Lowering) -> dict[str, object]:
    """Return the artefact's facts about its programs, as JSON values."""
    return {
        "wdport": VERSION,
        "jax": jax.__version__,
        "platforms": list(lowering.platforms),
        "batch": lowering.batch,
        **network.about.sizes,
        "dtype": network.dtype,
        "precision": lowering.precision,
        **({} if network.about.classes is None else {"classes": network.about.classes}),
        "target": network.process().target,
    }


def _plan_facts(plan: Plan) -> dict[str, object]:
    return {"name": plan.sampler, "eta": plan.eta, "steps": plan.steps.tolist(), "slots": plan.slots}
