"""What several verbs share: reports, opening a converted file, and lines of a summary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from wdport.checkpoint.expected_hash import require_sha256
from wdport.cli.console import console
from wdport.errors import UsageError, printable
from wdport.files.inputs import InputFiles
from wdport.files.writable import OutputPath, require_apart, writable
from wdport.options import PathText

if TYPE_CHECKING:  # imports numpy
    from wdport.conversion.load import Converted
    from wdport.model import Array

LONGEST_FACT = 2000
"""Characters; the middle of longer texts is left out."""

SAMPLERS: Final = ("ddpm", "ddim", "ddim-textbook", "dpm-solver++", "sde-dpm-solver++", "heun", "euler", "rk4")
"""Samplers of all families; each family states which of them it has."""


@dataclass(frozen=True)
class Report:
    """A file to be written at the end: the option that names it, and its kind in ``writable.OURS``."""

    option: str
    kind: str
    path: Path


def model_inputs(model: str, sha256: str | None, **files: PathText | None) -> InputFiles:
    """The input files of a verb: a converted model, of which --sha256 is the hash, its manifest, and others."""
    inputs = InputFiles(model=model, **files).with_manifests("model")
    inputs.check(partial(require_sha256, model, sha256))
    return inputs


def reports(*named: tuple[str, str, str | None]) -> list[Report]:
    """Reports from (option, kind, file), without the options that are not given."""
    return [Report(option, kind, Path(file)) for option, kind, file in named if file is not None]


def require_reports(requested: Iterable[Report], inputs: Mapping[str, Path], force: bool) -> dict[str, OutputPath]:
    """Return the outputs by option; refuse a file that could not be written at the end, or would replace an input,
    another report or a foreign file.

    Special files, such as ``/dev/stdout``, are written to.
    """
    requested = list(requested)
    require_apart([(report.option, report.path) for report in requested], inputs)
    return {
        report.option: writable(report.path, inputs, force, report.option, report.kind, True) for report in requested
    }


def open_own(model: str, mapping: str | None, function: str | None, inputs: Sequence[str] = ()) -> Converted:
    """Open a converted file; ``mapping``, ``function`` and ``inputs`` are for a user's own model."""
    from wdport.conversion.load import open_converted
    from wdport.families.registry import own_model

    user_family = own_model(mapping, function, None, inputs)
    if user_family is None and (inputs or function):
        what = "is for a model of your own" + ("" if mapping else ", which --mapping describes")
        raise UsageError(
            "--input" if inputs else "--keras-model", what, "leave it out, or give the table of your own model"
        )
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
    from wdport.families.roles import Sampled
    from wdport.mapping.table import CUSTOM

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


def size(count: int) -> str:
    """A readable number of bytes: ``5.8 MB``."""
    number = float(count)
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.2f} GB"


def facts(pairs: Sequence[tuple[str, object]]) -> str:
    """Label and value per line, labels in a column; empty values are left out."""
    rows = [(printable(label, LONGEST_FACT), printable(value, LONGEST_FACT)) for label, value in pairs
            if value not in ("", None)]  # fmt: skip
    width = max((len(label) for label, _ in rows), default=0)
    return "\n".join(f"  {label:<{width}}  {value}" for label, value in rows)
