"""Parse a mapping table and the tables that it includes: YAML bytes to typed rows, every row checked, with its line;
and find the tables that wdport and other packages ship, and the one that fits a list of tensor names.

A table states what is done with every tensor of one key layout, and which layers of the two models compute the same.
In format 2 a row is a layer, and its kind determines both. In format 1 they are listed separately (`tensors`, `taps`).
The rows of a section share a name prefix and a feature.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path, PurePosixPath

from wdport.base.errors import InternalError, MisfitError, did_you_mean
from wdport.base.extensions import tables_folders
from wdport.base.limits import MAX_INCLUDES, MAX_TABLE_BYTES
from wdport.checkpoint.regular_file import read_option
from wdport.mapping.kinds import KINDS, kinds_named
from wdport.mapping.names import PatternIndex
from wdport.mapping.prefixes import common_prefix
from wdport.mapping.row_parser import parse_fill, parse_layer, parse_row, parse_tensors, parse_tie
from wdport.mapping.rows import ConstantRow, Row, Table, TapRow
from wdport.mapping.schema import Rows, SectionForm, TableForm
from wdport.mapping.strict_yaml import Section, YamlFields, YamlNode, load_yaml, nodes_of


def mappings_folder() -> Path:
    """Return ``mappings/`` inside the installed package, or next to it in a source checkout."""
    package = Path(__file__).parents[1]
    for folder in (package / "_mappings", package.parent / "mappings"):
        # The wheel has the tables inside the package (`_mappings`), a checkout next to it.
        if any(folder.glob("*.yaml")):
            return folder
    raise InternalError("wdport", "its mapping tables are not installed", "install the package again")


def included_file(entry: str, folder: Path | None, fields: YamlFields, line: int) -> Path:
    """Return the file of one entry of `include`: a name from ``mappings/``, or a path relative to the table's file.

    Raises :class:`MisfitError` if it does not exist.
    """
    path = PurePosixPath(entry)
    if path.suffix not in (".yaml", ".yml") and len(path.parts) == 1:
        shipped = mappings_folder() / f"{entry}.yaml"
        if not shipped.is_file():
            names = ", ".join(sorted(file.stem for file in mappings_folder().glob("*.yaml")))
            fix = f"use one of {names}, or the path of a .yaml file next to the table"
            raise fields.fault(f"include: no table {entry!r} comes with wdport", fix, line)
        return shipped
    if path.is_absolute() or ".." in path.parts:
        raise fields.fault(f"include: {entry!r} is outside the table's folder", "use a path below that folder", line)
    if folder is None:
        raise fields.fault(
            f"include: {entry!r} is relative to the table's file", "include by name, or save the table", line
        )
    if not (folder / path).is_file():
        raise fields.fault(f"include: no file {entry!r} next to the table", "correct the path", line)
    return folder / path


__all__ = ["Row", "Table", "TapRow", "load_table", "parse_table"]

CUSTOM = "custom"
"""The family of a table that does not name one: the user's own model."""

_ROWS = tuple(Rows.__annotations__)


def load_table(path: Path) -> Table:
    """Read a table file; raises :class:`MisfitError` naming the line of the first fault."""
    return parse_table(_read(path), str(path), path.parent)


def _read(path: Path) -> bytes:
    return read_option(path, MAX_TABLE_BYTES, "give the path of a mapping table")


def parse_table(data: bytes, where: str, folder: Path | None = None) -> Table:
    """Parse the bytes of a table; ``where`` names it in errors, ``folder`` is the folder of included files."""
    reader = _Reader()
    table = _with_rows(reader.read(data, where, folder))
    if not reader.files:
        return table
    # In the order in which they are read: the hash changes with any file and with the order.
    digests = [table.sha256, *(hashlib.sha256(data).hexdigest() for data in reader.files.values())]
    names = tuple(file.name for file in reader.files)
    return replace(table, sha256=hashlib.sha256("".join(digests).encode()).hexdigest(), includes=names)


def table_of(fields: Mapping[str, object], where: str) -> Table:
    """The table of these fields, which are plain values as in YAML; it has no SHA-256."""
    return _with_rows(_Reader().parse(nodes_of(fields), "", where, None))


def _with_rows(table: Table) -> Table:
    if not (table.rows or table.taps or table.fills):
        raise MisfitError((table.path, "line 1"), "no rows", f"give at least one row under {', '.join(_ROWS[:2])}")
    return table


@dataclass
class _Lists:
    """The rows of a table and of those that it includes."""

    rows: list[Row] = field(default_factory=list)
    taps: list[TapRow] = field(default_factory=list)
    fills: list[ConstantRow] = field(default_factory=list)


@dataclass
class _Reader:
    """Reads a table and the files that it includes, each once."""

    files: dict[Path, bytes] = field(default_factory=dict)
    layers: int = 0
    open: list[Path] = field(default_factory=list)

    def read(self, data: bytes, where: str, folder: Path | None) -> Table:
        return self.parse(load_yaml(data, where), hashlib.sha256(data).hexdigest(), where, folder)

    def parse(self, node: YamlNode, digest: str, where: str, folder: Path | None) -> Table:
        root = YamlFields(node, where)
        line = root.line_of("format")
        stated = root.take("format")
        if stated is None:
            # A misspelt `format` would otherwise be reported as a file of another kind.
            for name in root.rest:
                if name not in TableForm.__annotations__ and (meant := did_you_mean(name, ["format"])):
                    raise root.fault(f"unknown field {name!r}", meant, root.line_of(name))
            raise root.fault("has no `format`: not a mapping table", "give a mapping table, see docs/mapping.md", line)
        if type(stated) is not int or stated not in (1, 2):
            raise root.fault("format is not 1 or 2", "write `format: 2`", line)
        if stated == 1 and any(root.has(name) for name in _ROWS):
            raise root.fault("format 1 has no rows for layers, tensors or ties", "write `format: 2`", line)
        return (_format_1 if stated == 1 else self._format_2)(root, where, digest, folder)

    def _format_2(self, root: YamlFields, where: str, digest: str, folder: Path | None) -> Table:
        family, variant = root.optional_text("family") or CUSTOM, root.optional_text("variant") or ""
        signature = root.pattern("signature") if root.has("signature") else None
        held = self._include(root, folder)
        torch, keras = (root.optional_text(name) or "" for name in ("torch", "keras"))
        inputs, outputs = root.texts("inputs"), root.texts("outputs")
        config, sampling = root.texts("config"), root.plain("sampling")
        self._rows(root, where, Section(), held)
        for node in root.list("sections") if root.has("sections") else ():
            fields = YamlFields(node, where)
            section = Section(*(fields.optional_text(name) for name in ("torch", "keras", "when")))
            if not any(fields.has(name) for name in _ROWS):
                raise fields.fault("a section without rows", f"give it {' or '.join(_ROWS)}, or remove it")
            self._rows(fields, where, section, held)
            fields.finish(SectionForm.__annotations__)
        root.finish(TableForm.__annotations__)
        tapped = tuple(_stacked(held.taps))
        return Table(where, digest, family, variant, signature, tuple(held.rows), tapped, torch, keras, inputs, outputs,
                     config, sampling=sampling, fills=tuple(held.fills))  # fmt: skip

    def _rows(self, fields: YamlFields, where: str, section: Section, held: _Lists) -> None:
        for node in fields.list("layers") if fields.has("layers") else ():
            self.layers += 1
            more, tapped = parse_layer(node, where, section, self.layers, KINDS, kinds_named)
            held.rows += more
            held.taps += tapped
        if fields.has("tensors"):
            held.rows += [parse_tensors(node, where, section) for node in fields.list("tensors")]
        if fields.has("tied"):
            held.rows += [parse_tie(node, where, section) for node in fields.list("tied")]
        if fields.has("filled"):
            held.fills += [parse_fill(node, where, section) for node in fields.list("filled")]

    def _include(self, root: YamlFields, folder: Path | None) -> _Lists:
        """Return the rows of all included files, marked with the file's name."""
        line = root.line_of("include")
        held = _Lists()
        for entry in root.texts("include"):
            file = included_file(entry, folder, root, line)
            if file in self.open or file == Path(root.where):
                raise root.fault(f"include: {entry!r} includes itself", "remove one of the two", line)
            # Two included files may include a third: its rows are added once.
            if file in self.files:
                continue
            if len(self.files) == MAX_INCLUDES:
                raise root.fault(f"include: more than {MAX_INCLUDES} files", "use fewer files", line)
            self.files[file] = _read(file)
            self.open.append(file)
            table = self.read(self.files[file], str(file), file.parent)
            self.open.pop()
            held.rows += [_from_file(row, file.name) for row in table.rows]
            held.taps += [replace(tap, file=tap.file or file.name) for tap in table.taps]
            held.fills += [replace(fill, file=fill.file or file.name) for fill in table.fills]
        return held


def _stacked(taps: Sequence[TapRow]) -> Iterator[TapRow]:
    """Yield taps; a row that names the last layer of a stack replaces the stack's own tap."""
    stacks = {tap.torch.text: tap.stack for tap in taps if tap.keras is tap.stack}
    stated = {tap.torch.text for tap in taps if tap.keras is not tap.stack}
    for tap in taps:
        if tap.keras is not tap.stack:
            yield replace(tap, stack=stacks.get(tap.torch.text))
        elif tap.torch.text not in stated:
            yield tap


def _from_file(row: Row, name: str) -> Row:
    layer = replace(row.layer, file=row.layer.file or name) if row.layer else None
    return replace(row, file=row.file or name, layer=layer)


def _format_1(root: YamlFields, where: str, digest: str, folder: Path | None) -> Table:
    family, variant = root.text("family"), root.text("variant")
    signature = root.pattern("signature")
    rows: list[Row] = []
    taps: list[TapRow] = []
    for node in root.list("sections"):
        fields = YamlFields(node, where)
        section = Section(*(fields.optional_text(name) for name in ("torch", "keras", "when")))
        if not fields.has("tensors") and not fields.has("taps"):
            raise fields.fault("a section without rows", "give it tensors or taps, or remove it")
        if fields.has("tensors"):
            rows += [parse_row(row, where, section) for row in fields.list("tensors")]
        if fields.has("taps"):
            taps += [_parse_tap(row, where, section) for row in fields.list("taps")]
        fields.finish()
    root.finish()
    if not rows:
        raise root.fault("no tensors in any section", "give at least one row under `tensors:`")
    return Table(where, digest, family, variant, signature, tuple(rows), tuple(taps))


def _parse_tap(node: YamlNode, where: str, section: Section) -> TapRow:
    fields = YamlFields(node, where)
    torch, keras = fields.pattern("torch", section.torch, "."), fields.pattern("keras", section.keras, "/")
    up_to = fields.optional_text("up_to")
    if up_to not in (None, "shift"):
        raise fields.fault(f"up_to is {up_to!r}", "write `up_to: shift`, or leave it out")
    optional = fields.flag("optional")
    fields.finish()
    fields.same_indices(torch, [keras])
    return TapRow(node.line, torch, keras, when=section.when, shift=up_to is not None, optional=optional)


OWN_MODEL = "make one for your own model with wdport map suggest (docs/own-model.md), and give it with `--mapping FILE`"


@cache
def shipped_tables() -> tuple[Table, ...]:
    """Return all tables that come with wdport and with packages of families, and have a signature, by file name."""
    folders = {"": mappings_folder(), **{f"{package}/": folder for package, folder in tables_folders().items()}}
    tables = [
        parse_table(file.read_bytes(), f"{package}mappings/{file.name}", file.parent)
        for package, folder in folders.items()
        for file in sorted(folder.glob("*.yaml"))
    ]
    return tuple(table for table in tables if table.signature is not None)


def choose_table(names: Iterable[str], where: str | Path) -> Table:
    """Return the shipped table whose signature occurs among ``names``.

    Raises :class:`MisfitError` if there is none or more than one.
    """
    names = list(names)
    fitting = [table for table in shipped_tables() if _signed(table, names)]
    # The names may all have a prefix more or less than the table's.
    fitting = fitting or [table for table in shipped_tables() if (prefix := common_prefix(table, names))
                          and _signed(table, prefix.names.values())]  # fmt: skip
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        paths = ", ".join(table.path for table in fitting)
        raise MisfitError(where, f"tensors of several layouts ({paths})", "name one table with `--mapping FILE`")
    best, hits = "", 0
    # No table fits: only now are all rows matched, to name the nearest one.
    for table in shipped_tables():
        index = PatternIndex(pattern for row in table.rows for pattern in row.torch)
        count = sum(bool(index.find(name)) for name in names)
        if count > hits:
            best, hits = table.path, count
    nearest = f"; nearest is {best} with {hits} of {len(names)} names" if best else ""
    tensors = f"{len(names)} tensor{'' if len(names) == 1 else 's'}"
    raise MisfitError(where, f"no mapping table fits its {tensors}{nearest}", OWN_MODEL)


def _signed(table: Table, names: Iterable[str]) -> bool:
    return table.signature is not None and any(table.signature.match(name) is not None for name in names)
