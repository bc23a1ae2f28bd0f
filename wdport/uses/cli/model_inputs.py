"""Open the converted model that a verb reads, and refuse one that the verb cannot use."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from wdport.base.errors import UsageError
from wdport.base.options import Option, PathText
from wdport.checkpoint.expected_hash import require_sha256
from wdport.cli.console import console
from wdport.files.inputs import InputFiles
from wdport.uses.diffusion.schedules import SPACINGS

if TYPE_CHECKING:
    from wdport.conversion.load import Converted
    from wdport.models.interface import Array

SAMPLERS: Final = ("ddpm", "ddim", "ddim-textbook", "euler", "euler-ancestral", "heun", "dpm++2m", "dpm++2m-sde",
                   "unipc", "probability-flow", "rk4", "predictor-corrector", "consistency")  # fmt: skip
"""Samplers of all families; each family states which of them it has."""

SPACING: Final = Option(
    "Choose the steps differently from the checkpoint's own code: leading, linspace or trailing, as in diffusers; or "
    "by noise level: karras, exponential or beta.", "NAME", choices=SPACINGS)  # fmt: skip


def model_inputs(model: str, sha256: str | None, **files: PathText | None) -> InputFiles:
    """The input files of a verb: a converted model, of which --sha256 is the hash, its manifest, and others."""
    inputs = InputFiles(model=model, **files).with_manifests("model")
    inputs.check(partial(require_sha256, model, sha256))
    return inputs


def open_own(model: str, mapping: str | None, function: str | None, inputs: Sequence[str] = ()) -> Converted:
    """Open a converted file; ``mapping``, ``function`` and ``inputs`` are for a user's own model."""
    from wdport.conversion.load import open_converted
    from wdport.families.registry import own_model

    user_family = own_model(mapping, function, None, inputs)
    if user_family is None and (inputs or function):
        what = "is for a model of your own" + ("" if mapping else ", which --mapping describes")
        fix = "leave it out, or give the table of your own model"
        raise UsageError("--input" if inputs else "--keras-model", what, fix)
    if mapping and user_family is None:
        raise UsageError("--mapping", "is the table of a model that wdport ships", "leave it out")
    return open_converted(model, user_family)


def open_sampled(model: str, mapping: str | None, function: str | None) -> Converted:
    """Open a converted file to sample from; ``mapping`` and ``function`` are for a user's own model.

    Raises :class:`UsageError` for a model that does not sample.
    """
    converted = open_own(model, mapping, function)
    if why := not_sampled(converted):
        raise UsageError(converted.path, *why)
    return converted


def not_sampled(converted: Converted) -> tuple[str, str] | None:
    """Why a model draws no samples, and what to do; None if it does."""
    from wdport.mapping.table import CUSTOM
    from wdport.uses.roles import Sampled

    if not isinstance(converted.family, Sampled):
        if converted.family.name == CUSTOM:
            fix = "if it is a diffusion model or a flow, add `sampling:` to its table"
            return "its table does not say how it draws samples", fix
        what = f"a {converted.family.name} model draws no samples"
        return what, "give a converted diffusion model; wdport.load_model runs this one"
    if why := converted.family.unsampled(converted.config):
        return f"does not sample: {why}", "wdport.load_model runs it"
    return None


def stored_variables(converted: Converted) -> dict[str, Array]:
    """Every variable of a converted file by its path; prints notes on the file."""
    from wdport.conversion.load import sound_variables

    if converted.note:
        console.note(converted.note)
    return dict(sound_variables(converted))
