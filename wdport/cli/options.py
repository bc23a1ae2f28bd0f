"""Options and small texts that several verbs share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wdport.errors import UsageError, printable
from wdport.files.writable import is_stream, require_apart, require_writable
from wdport.limits import MAX_PAD_WIDTHS

if TYPE_CHECKING:  # numpy comes with it
    from wdport.conversion.load import Converted
    from wdport.model import Array

LONGEST_FACT = 2000
"""Characters; what is longer loses its middle."""


def parse_values(pairs: tuple[str, ...]) -> dict[str, str]:
    """``KEY=VALUE`` texts as a dictionary; raises :class:`UsageError`."""
    values: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key or not value:
            raise UsageError("--set", f"{pair!r} is not KEY=VALUE", "write for example --set num_heads=8")
        if key in values:
            raise UsageError("--set", f"{key} is given twice", "give it once")
        values[key] = value
    return values


mapping_option = click.option(
    "--mapping", metavar="FILE", help="A mapping table of your own.  [default: the shipped one that fits]"
)
own_mapping_option = click.option(
    "--mapping", metavar="FILE", help="The table of a model of your own, with what sampling needs."
)
own_model_option = click.option(
    "--model", "function", metavar="MODULE:FUNCTION", help="Your own Keras model, if the table does not name it."
)
pad_option = click.option(
    "--pad-widths", type=click.IntRange(1, MAX_PAD_WIDTHS), default=1, metavar="M",
    help="Fill widths up with zeros to a multiple of M, for matrix units of that size; no use on a CPU.",
)  # fmt: skip
force_option = click.option("--force", is_flag=True, help="Replace files that are no reports of wdport.")
key_option = click.option(
    "--key", metavar="NAME", help="Key of the state_dict where the file holds several.  [default: found by itself]"
)

sha256_option = click.option(
    "--sha256", metavar="HEX", help="The SHA-256 that the first file named must have, the checkpoint if there is one."
)


@dataclass(frozen=True)
class Report:
    """A file to be written at the end: the option that names it, and what it is of ``writable.OURS``."""

    option: str
    kind: str
    path: Path


def reports(*named: tuple[str, str, str | None]) -> list[Report]:
    """Option, kind and file; without those whose option is not given."""
    return [Report(option, kind, Path(file)) for option, kind, file in named if file is not None]


def require_reports(wanted: Iterable[Report], inputs: Mapping[str, Path], force: bool) -> None:
    """Refuse what could not be written when all is done, or would destroy an input, another report or a foreign file.

    What is no regular file, such as ``/dev/stdout``, is written into.
    """
    wanted = list(wanted)
    require_apart([(each.option, each.path) for each in wanted], inputs)
    for each in wanted:
        if not is_stream(each.path):
            require_writable(each.path, inputs, force, each.option, each.kind)


def open_sampled(model: str, mapping: str | None, function: str | None) -> Converted:
    """A converted file that samples can be drawn from; ``mapping`` and ``function`` tell the user's own model.

    Raises :class:`UsageError` for a model of a family that draws none.
    """
    from wdport.conversion.load import open_converted
    from wdport.families.choice import own_model
    from wdport.families.roles import Sampled

    own = own_model(mapping, function, None, ())
    if mapping and own is None:
        raise UsageError("--mapping", "the table is that of a family that wdport comes with", "leave it out")
    converted = open_converted(model, own)
    if not isinstance(converted.family, Sampled):
        what = f"a {converted.family.name} model does not sample"
        raise UsageError(converted.path, what, "give a converted diffusion model; wdport.load_model runs this one")
    if why := converted.family.unsampled(converted.config):
        raise UsageError(converted.path, f"does not sample: {why}", "wdport.load_model runs it")
    return converted


def stored_variables(converted: Converted) -> dict[str, Array]:
    """Every variable of a converted file by its path; says what a user has to know of the file."""
    from wdport.conversion.load import sound_variables

    if converted.note:
        click.echo(f"note: {converted.note}", err=True)
    return dict(sound_variables(converted))


def size(count: int) -> str:
    """Bytes for a person: ``5.8 MB``."""
    number = float(count)
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.2f} GB"


def facts(pairs: Sequence[tuple[str, object]]) -> str:
    """Label and value per line, labels in a column; empty values are left out."""
    shown = [(label, printable(value, LONGEST_FACT)) for label, value in pairs if value not in ("", None)]
    width = max((len(label) for label, _ in shown), default=0)
    return "\n".join(f"  {label:<{width}}  {value}" for label, value in shown)
