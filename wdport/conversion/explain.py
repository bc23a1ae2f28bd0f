"""Explain where a variable comes from and where a tensor goes: the rule, the line of the table, both sides' shapes.

The source is the plan of a checkpoint, or the manifest in a converted file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Literal, cast

from wdport.conversion.load import open_account
from wdport.conversion.manifest_schema import Account, Manifest
from wdport.conversion.prepare import Prepared, Settings, prepare_headers
from wdport.errors import InputError, MisfitError, UsageError
from wdport.files.manifest_seal import CONVERT_AGAIN
from wdport.files.model_files import read_metadata
from wdport.files.model_target import KERAS, format_at
from wdport.mapping.arrays import combined_shape
from wdport.mapping.axes import AxisError, Combine, Rule, Shape, find_rule
from wdport.mapping.table import load_table

Fate = Literal["moved", "checked", "dropped", "tied", "ignored"]


@dataclass(frozen=True)
class End:
    """A tensor or a variable: its name, shape and dtype; an unknown shape is ``None``."""

    name: str
    shape: Shape | None
    dtype: str = ""


@dataclass(frozen=True)
class Route:
    """What is done with tensors, or what variables are made from.

    Attributes:
        fate: whether the tensors fill variables, or else what is done with them.
        sources: the tensors, in the order that the rule takes them.
        targets: the variables; none unless ``moved``.
        rule: the rule, ``None`` unless ``moved``.
        sizes: the size of every axis of the rule; empty if the shapes do not determine them.
        combine: the arithmetic before the rule.
        table: the file that contains the row.
        line: its line; 0 if unknown.
        reason: the constant, the reason for dropping, or the other tensor.
        notes: further facts, in sentences.
    """

    fate: Fate
    sources: tuple[End, ...]
    targets: tuple[End, ...] = ()
    rule: Rule | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    combine: Combine = ""
    table: str = ""
    line: int = 0
    reason: str = ""
    notes: tuple[str, ...] = ()

    def has(self, name: str) -> bool:
        return any(end.name == name for end in (*self.sources, *self.targets))


@dataclass(frozen=True)
class Routes:
    """Every route of one file, and the prefixes that were removed from its names."""

    file: str
    routes: tuple[Route, ...]
    prefixes: tuple[str, ...] = ()

    @property
    def names(self) -> dict[str, None]:
        """Every tensor and every variable."""
        return {end.name: None for route in self.routes for end in (*route.sources, *route.targets)}

    def explain(self, name: str) -> tuple[Route, ...]:
        """Return the routes of a tensor or variable; raises :class:`UsageError` with the most similar names."""
        prefix = "".join(self.prefixes)
        # A user may copy a name from the checkpoint, with the prefixes that the conversion removed.
        for candidate in dict.fromkeys((name, name.removeprefix(prefix), *map(name.removeprefix, self.prefixes))):
            if routes := tuple(route for route in self.routes if route.has(candidate)):
                return routes
        names = list(self.names)
        near = get_close_matches(name, names, 3) or [other for other in names if name and name in other][:3]
        fix = f"did you mean {' or '.join(near)}?" if near else "wdport inspect --tensors lists the names"
        raise UsageError((Path(self.file), name), "no tensor or variable of that name", fix)


def routes_of(path: str | Path, settings: Settings) -> Routes:
    """Return the routes of a converted file, by its manifest, or of a checkpoint, by its plan; raises as a conversion
    does."""
    file = Path(path)
    if is_converted(file):
        account, _ = open_account(file)
        if account is None:
            raise InputError(file, "was saved by Keras and does not state what it was made from", CONVERT_AGAIN)
        _require_same_table(file, account, settings)
        return from_account(file, account)
    with prepare_headers(file, settings) as prepared:
        return from_plan(prepared)


def _require_same_table(file: Path, account: Account, settings: Settings) -> None:
    """Refuse another table than the converted file's, and options that only a plan needs."""
    options = {
        "--keras-model": settings.model,
        "--config": settings.config,
        "--set": settings.values,
        "--key": settings.key,
    }
    for option, value in options.items():
        if value:
            raise UsageError(option, f"{file.name} is a converted file, whose manifest is used", "leave it out")
    if settings.mapping and load_table(Path(settings.mapping)).sha256 != account.mapping.sha256:
        what = f"{settings.mapping} is not the table that converted it, {account.mapping.name}"
        raise MisfitError(file, what, "leave `--mapping` out, or convert the checkpoint again")


def is_converted(path: Path) -> bool:
    """Return whether a file is, by its name, a converted model; a safetensors file only if it has a manifest."""
    form = format_at(path)
    return form is not None and (form in KERAS or read_metadata(path).manifest is not None)


def from_plan(prepared: Prepared) -> Routes:
    """Return the routes of a plan."""
    plan, tensors = prepared.plan, prepared.checkpoint.tensors
    ends = {name: End(name, tuple(info.shape), info.dtype) for name, info in tensors.items()}
    moved = [
        Route(
            "moved",
            tuple(ends[name] for name in move.sources),
            tuple(End(name, tuple(prepared.variables[name]), "float32") for name in move.targets),
            move.rule,
            dict(move.sizes),
            move.combine,
            move.file or plan.table.path,
            move.line,
        )
        for move in plan.moves
    ]
    others = _others(ends, plan.checks, plan.drops, plan.ties, prepared.checkpoint.ignored)
    return Routes(str(prepared.checkpoint.path), _joined(moved, others), tuple(prepared.checkpoint.prefixes))


def from_account(path: Path, account: Account) -> Routes:
    """Return the routes in a manifest; raises ``InputError`` if it is damaged."""
    manifest = cast(Manifest, account.manifest)
    try:
        moved: dict[tuple[str, ...], Route] = {}
        for entry in manifest["tensors"]:
            end = End(str(entry["source"]), tuple(map(int, entry["shape"])), str(entry["dtype"]))
            targets = tuple(End(str(t["path"]), tuple(map(int, t["shape"])), t.get("dtype", "float32"))
                            for t in entry["targets"])  # fmt: skip
            # All tensors of one row have the same targets, which is what joins them again.
            key = tuple(target.name for target in targets)
            previous = moved.get(key)
            notes = ("recomputed: 16-bit storage ruins its values",) if entry["recomputed"] else ()
            if previous:
                moved[key] = replace(previous, sources=(*previous.sources, end))
            else:
                moved[key] = Route("moved", (end,), targets, find_rule(str(entry["rule"])), {}, entry["combine"],
                                   str(entry["table"]), int(entry["line"]), notes=notes)  # fmt: skip
        ends = {end.name: end for route in moved.values() for end in route.sources}
        checks = {str(entry["source"]): str(entry["constant"]) for entry in manifest["checks"]}
        others = _others(ends, checks, manifest["drops"], manifest["ties"], manifest["ignored"])
        routes = _joined([_sized(route) for route in moved.values()], others)
        return Routes(str(path), routes, tuple(manifest["source"]["prefixes"] or ()))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(path, f"its manifest is damaged ({type(error).__name__})", CONVERT_AGAIN) from None


def _sized(route: Route) -> Route:
    """Add the sizes of the rule's axes, if the shapes determine them."""
    if route.rule is None:
        return route
    shapes = [end.shape or () for end in route.sources]
    try:
        moved = [combined_shape(route.combine, shapes)] if route.combine else shapes
        return replace(route, sizes=route.rule.sizes(moved, [end.shape or () for end in route.targets]))
    except AxisError:
        return route


def _others(
    ends: Mapping[str, End],
    checks: Mapping[str, str],
    drops: Mapping[str, str],
    ties: Mapping[str, str],
    ignored: Mapping[str, str],
) -> Iterator[Route]:
    """Yield routes that fill no variable; a manifest does not keep their shapes."""
    fates: tuple[tuple[Fate, Mapping[str, str]], ...] = (
        ("checked", checks), ("dropped", drops), ("tied", ties), ("ignored", ignored),
    )  # fmt: skip
    for fate, reasons in fates:
        for name, reason in reasons.items():
            yield Route(fate, (ends.get(name, End(name, None)),), reason=str(reason))


def _joined(moved: list[Route], others: Iterator[Route]) -> tuple[Route, ...]:
    """Join all routes; a tensor that fills a variable and is also compared or tied to has one route, with a note."""
    left, notes = [], dict[str, list[str]]()
    used = {end.name for route in moved for end in route.sources}
    for route in others:
        name = route.sources[0].name
        if route.fate == "checked" and name in used:
            notes.setdefault(name, []).append(f"{name} is also compared with {route.reason}")
            continue
        if route.fate == "tied":
            notes.setdefault(route.reason, []).append(f"{name} is tied to {route.reason}, bit for bit")
        left.append(route)
    annotated = [
        replace(route, notes=(*route.notes, *(text for end in route.sources for text in notes.get(end.name, ()))))
        for route in moved
    ]
    return (*annotated, *left)
