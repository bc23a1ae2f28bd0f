"""`wdport map outline`: list the layers of a PyTorch model for porting."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from wdport.base.errors import UsageError, printable
from wdport.base.options import INPUTS, JSON, Operand, Option
from wdport.cli.click_options import verb
from wdport.cli.console import LONGEST_FACT, facts, width_of
from wdport.cli.documents import give, require_document
from wdport.cli.machine import require_torch
from wdport.files.inputs import InputFiles

if TYPE_CHECKING:
    from wdport.porting.outline.result import Outline, Step, Value

WIDEST = (40, 24, 30, 62)
"""Widths in characters of all columns but the last; a longer text shifts the next column."""


@dataclass(frozen=True, kw_only=True)
class OutlineRequest:
    """The command's argument and options."""

    checkpoint: Annotated[str | None, Operand(files="checkpoint")] = None
    reference: Annotated[str | None, Option(
        "Function that builds your PyTorch model.", "MODULE:FUNCTION", group="model")] = None  # fmt: skip
    inputs: Annotated[tuple[str, ...], INPUTS] = ()
    mapping: Annotated[str | None, Option(
        "A table that names the function and the inputs.", files="table", group="model")] = None  # fmt: skip
    config: Annotated[str | None, Option(
        "Arguments for the function (YAML or JSON); with --mapping, those that the table names.",
        files="table")] = None  # fmt: skip
    every: Annotated[bool, Option(
        "List every block, including those with the same structure.", names=("--rows",))] = False  # fmt: skip
    json_file: Annotated[str | None, JSON] = None


@verb("outline", OutlineRequest, short_help="List the layers of a PyTorch model, and the corresponding Keras layers.")
def command(request: OutlineRequest) -> None:
    """List every layer and function of your PyTorch model in call order, with the Keras layers that compute the same
    results.

    The model is run in float64 on random inputs. CHECKPOINT is for a function that takes a checkpoint path.
    """
    from wdport.mapping.strict_yaml import read_yaml
    from wdport.porting.outline.make import outline, outline_of_table
    from wdport.porting.outline.result import outline_document

    checkpoint, reference, mapping, config = request.checkpoint, request.reference, request.mapping, request.config
    if reference is None and mapping is None:
        fix = "give --reference MODULE:FUNCTION, or --mapping FILE"
        raise UsageError("wdport map outline", "no model is named", fix)
    require_torch("wdport map outline")
    inputs = InputFiles(checkpoint=checkpoint, mapping=mapping, config=config)
    document = require_document(request.json_file, inputs)
    arguments = read_yaml(Path(config), "give a file of NAME: VALUE").plain() if config else {}
    with redirect_stdout(sys.stderr):  # the model may print
        if mapping is not None:
            model_outline = outline_of_table(mapping, reference, request.inputs, arguments, checkpoint)
        else:
            model_outline = outline(reference or "", request.inputs, arguments, checkpoint)
    give("outline", lambda: outline_document(model_outline), document,
         lambda: outline_text(model_outline, request.every, width_of(sys.stdout)), asked=True)  # fmt: skip


class OutlineRow(NamedTuple):
    """A line of the table: a step, which has a ``number``, the header, or a heading: a name and a call in PyTorch."""

    depth: int
    number: str
    name: str
    kind: str = ""
    axes: str = ""
    torch: str = ""
    keras: str = ""

    @property
    def is_heading(self) -> bool:
        """Whether it is a heading of steps, which has no columns."""
        return not (self.number or self.keras)


HEADER = OutlineRow(0, "", "step", "kind", "axes", "PyTorch", "Keras")


def outline_text(outline: Outline, every: bool, columns: int | None = None) -> str:
    """With ``every``, repeated blocks are not merged. A table wider than ``columns``, if given, has a line for each
    side of a step."""
    page = _Page(outline, every)
    rows = list(page.rows())
    layers = len({step.path.partition("#")[0] for step in outline.layers})
    versions = outline.versions
    batch = f", batch {outline.batch}" if any("b" in value.sizes for value in outline.inputs) else ""
    head = [
        ("model", f"{outline.root.type}: {outline.weights:,} parameters in {layers} layers; {page.last} steps"),
        *(("input", f"{value.source}: {value}" + (f", {value.kind}" if value.kind != "float" else ""))
          for value in outline.inputs),
        ("output", "; ".join(map(str, outline.root.outputs))),
        ("run", f"float64{batch}; torch {versions['torch']}, keras {versions['keras']}"),
        *(("note", note) for note in outline.notes),
        *(("not called", f"{name}: {torch}") for name, torch in outline.uncalled.items()),
    ]  # fmt: skip
    table = list(_wide([HEADER, *rows]))
    if columns is not None and max(map(len, table)) > columns:
        table = list(_narrow(rows))
    lines = [printable(outline.target, None), facts(head), "", *table]
    lines += _section("where Keras's default differs", page.defaults)
    lines += _section("watch out for", page.notes)
    return "\n".join(lines)


class _Page:
    """The rows of an outline, and the notes below them with the rows they refer to."""

    def __init__(self, outline: Outline, every: bool) -> None:
        self._root, self._every = outline.root, every
        self.defaults: dict[str, list[int]] = {}
        self.notes: dict[str, list[int]] = {}
        self.last = max((step.number for step in outline.root.walk()), default=0)
        self._before = ""

    def rows(self) -> Iterator[OutlineRow]:
        self._say(self._root)
        yield from self._inside(self._root, 0)

    def _inside(self, around: Step, depth: int) -> Iterator[OutlineRow]:
        from wdport.porting.outline.make import Folded, fold

        unfolded = (Folded((step,), 1, (step.name,)) for step in around.steps)
        for group in unfolded if self._every else fold(around.steps):
            repeated, several = group.times > 1, len(group.steps) > 1
            if repeated and several:
                yield OutlineRow(depth, "", f"{group.times} times, {group.range or 'the same layers'}:")
            named = dict(zip((step.name for step in group.steps), group.names, strict=True))
            for step in group.steps:
                times = ", ".join(filter(None, (f"{group.times} times", group.range)))
                times = times if repeated and not several else ""
                if times and group.chained and step.what == "module":
                    times += ", each of the one before"
                yield from self._step(step, named, depth + (repeated and several), times)

    def _step(self, step: Step, named: Mapping[str, str], depth: int, times: str) -> Iterator[OutlineRow]:
        """The rows of a step; ``named`` maps repeated steps to their names here."""
        self._say(step)

        def source(value: Value) -> str:
            name, bracket, rest = value.source.partition("[")
            return f"{named.get(name, name)}{bracket}{rest}"

        name = named[step.name] + (f", {times}" if times and step.what != "module" else "")
        if step.what == "module":
            arguments = ", ".join(f"{value.name}={source(value)}" for value in step.inputs)
            call = f"{step.type.rpartition('.')[2]}({arguments})"
            yield OutlineRow(depth, "", name, torch=f"{call}, {times}" if times else call)
            self._before = ""
            yield from self._inside(step, depth + 1)
            self._before = step.name
            return
        axes, torch = "; ".join(dict.fromkeys(map(str, step.outputs))), step.torch
        if step.what == "layer":
            ours = "; ".join(dict.fromkeys(map(str, step.inputs)))
            axes = axes if ours == axes else f"{ours} -> {axes}"
            if step.inputs and {value.source for value in step.inputs} != {self._before}:
                torch += f" of {', '.join(dict.fromkeys(map(source, step.inputs)))}"
        self._before = step.name if step.what == "layer" else f"[{step.number}]"
        yield OutlineRow(depth, str(step.number), name, step.kind, axes, torch, step.keras_text)

    def _say(self, step: Step) -> None:
        """Keep the notes on a step, or on the class of a module, for the end."""
        number = step.number or min((inner.number for inner in step.walk() if inner.number), default=0)
        for texts, numbers in ((step.notes, self.notes), (map(str, step.defaults), self.defaults)):
            for text in texts:
                of = "" if step.number else f"{step.type.rpartition('.')[2]}: "
                numbers.setdefault(f"{of}{text}", []).append(number)


def _narrow(rows: Sequence[OutlineRow]) -> Iterator[str]:
    """A step's number, name, kind and axes; below it the PyTorch side, then the Keras side."""
    width = max((len(row.number) for row in rows), default=0)
    for row in rows:
        indent = " " * (width + 2 + 2 * row.depth)
        if row.is_heading:
            yield printable(f"{indent}{'  '.join(filter(None, row[2:]))}", LONGEST_FACT)
            continue
        yield printable(f"{row.number:>{width}}  {'  ' * row.depth}{'  '.join(filter(None, row[2:5]))}", LONGEST_FACT)
        for side, text in (("PyTorch", row.torch), ("Keras", row.keras)):
            if text:
                yield printable(f"{indent}  {side:<7}  {text}", LONGEST_FACT)


def _wide(rows: Sequence[OutlineRow]) -> Iterator[str]:
    rows = [row._replace(name="  " * row.depth + row.name) for row in rows]
    columns = zip(*(row[2:6] for row in rows if not row.is_heading), strict=True)
    widths = [min(max(map(len, column)), widest) for column, widest in zip(columns, WIDEST, strict=True)]
    number = max(len(row.number) for row in rows)
    for row in rows:
        cells = [f"{cell:<{width}}" for cell, width in zip(row[2:6], widths, strict=True)]
        text = "  ".join(filter(None, (row.name, row.torch)) if row.is_heading else [*cells, row.keras])
        yield printable(f"{row.number:>{number}}  {text}".rstrip(), LONGEST_FACT)


def _section(title: str, places_by_text: Mapping[str, Sequence[int]]) -> list[str]:
    if not places_by_text:
        return []
    lines = (f"  {text}{_places(places)}" for text, places in places_by_text.items())
    return ["", title, *(printable(line, LONGEST_FACT) for line in lines)]


def _places(numbers: Sequence[int]) -> str:
    """``: 3, 5 and 7``, the steps of a note."""
    labels = [str(number) for number in dict.fromkeys(numbers) if number]
    if not labels:
        return ""
    more = f" and {len(labels) - 12} more" if len(labels) > 12 else ""
    return f": {', '.join(labels[:12])}{more}"
