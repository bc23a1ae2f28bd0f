"""Explain where a variable comes from and where a tensor goes: the rule, the line of the table, both sides' shapes.

The source is the plan of a checkpoint, or the manifest in a converted file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from wdport.base.errors import InputError, MisfitError, UsageError
from wdport.base.shared_types import Count, JsonShape, Positive, about
from wdport.checkpoint import open_checkpoint
from wdport.conversion.load import open_account
from wdport.conversion.manifest_schema import Account, Manifest, TargetEntry, TensorEntry
from wdport.conversion.prepare import Prepared, Settings, planned_from
from wdport.files.manifest_seal import CONVERT_AGAIN
from wdport.files.model_files import read_metadata
from wdport.files.model_target import KERAS, format_at
from wdport.mapping.axes import AxisError, Rule, find_rule
from wdport.mapping.rearrange import combined_shape
from wdport.mapping.table import load_table

Fate = Literal["moved", "checked", "dropped", "tied", "ignored", "filled"]


@dataclass(frozen=True)
class EndFacts:
    """A tensor or a variable."""

    name: Annotated[str, about("Name of the tensor or variable.")]
    shape: Annotated[JsonShape | None, about("Shape; null if unknown.")]
    dtype: Annotated[str | None, about("Dtype; null if unknown.")] = None


@dataclass(frozen=True)
class RouteFacts:
    """The destination of tensors, or the source of variables."""

    fate: Annotated[Fate, about(
        "How the tensors are used; if they are `moved`, they fill variables. A variable that no tensor fills is "
        "`filled` with a constant.")]  # fmt: skip
    sources: Annotated[Sequence[EndFacts], about("The tensors, in the order of the rule.")]
    targets: Annotated[Sequence[EndFacts], about("The variables.")] = ()
    rule: Annotated[str | None, about("Name of the rule; null unless tensors are moved.")] = None
    axes: Annotated[str | None, about("The rule written out; null unless tensors are moved.")] = None
    inverse: Annotated[str | None, about("The inverse of the rule; null unless tensors are moved.")] = None
    sizes: Annotated[
        Mapping[str, Count], about("Sizes of the rule's axes; empty if the shapes do not determine them.")
    ] = field(default_factory=dict)
    combine: Annotated[str, about(
        "Arithmetic that combines the tensors before the rule is applied; empty for none.")] = ""  # fmt: skip
    table: Annotated[str | None, about(
        "Mapping table that contains the row; null unless they are `moved` or `filled`.")] = None  # fmt: skip
    line: Annotated[Positive | None, about("Line number of the row in that table; null if there is none.")] = None
    reason: Annotated[str | None, about(
        "For a checked tensor or a filled variable, the constant; for a tied tensor, the other tensor; for a dropped "
        "or ignored tensor, the reason; null if tensors are moved.")] = None  # fmt: skip
    notes: Annotated[Sequence[str], about("Notes for the reader, one sentence each.")] = ()

    def has(self, name: str) -> bool:
        return any(end.name == name for end in (*self.sources, *self.targets))


@dataclass(frozen=True)
class Routes:
    """Every route of one file, and the prefixes that were removed from its names."""

    file: str
    routes: tuple[RouteFacts, ...]
    prefixes: tuple[str, ...] = ()

    @property
    def names(self) -> dict[str, None]:
        """Every tensor and every variable."""
        return {end.name: None for route in self.routes for end in (*route.sources, *route.targets)}

    def explain(self, name: str) -> tuple[RouteFacts, ...]:
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
    with open_checkpoint(file, key=settings.key, likely=settings.likely) as checkpoint:
        return from_plan(planned_from(checkpoint, settings))


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
    ends = {name: EndFacts(name, tuple(info.shape), info.dtype) for name, info in tensors.items()}
    moved = [
        _moved(
            tuple(ends[name] for name in move.sources),
            tuple(EndFacts(name, tuple(prepared.variables[name]), "float32") for name in move.targets),
            move.rule,
            sizes=dict(move.sizes),
            combine=move.combine,
            table=move.file or plan.table.path,
            line=move.line or None,
        )
        for move in plan.moves
    ]
    moved += [
        RouteFacts("filled", (), (EndFacts(fill.target, fill.shape, "float32"),), reason=fill.fill,
                   table=fill.file or plan.table.path, line=fill.line or None)
        for fill in plan.fills
    ]  # fmt: skip
    others = _others(ends, plan.checks, plan.drops, plan.ties, prepared.checkpoint.ignored)
    return Routes(str(prepared.checkpoint.path), _joined(moved, others), tuple(prepared.checkpoint.prefixes))


def _moved(sources: tuple[EndFacts, ...], targets: tuple[EndFacts, ...], rule: Rule | None, **facts: Any) -> RouteFacts:
    if rule is None:
        return RouteFacts("moved", sources, targets, **facts)
    return RouteFacts("moved", sources, targets, rule.name, str(rule), str(rule.inverse()), **facts)


def from_account(path: Path, account: Account) -> Routes:
    """Return the routes in a manifest; raises ``InputError`` if it is damaged."""
    manifest = cast(Manifest, account.manifest)
    try:
        # All tensors of one row have the same targets, which is what joins them again.
        rows: dict[tuple[str, ...], list[TensorEntry]] = {}
        for entry in manifest["tensors"]:
            rows.setdefault(tuple(target["path"] for target in entry["targets"]), []).append(entry)
        moved = [_recorded(entries) for entries in rows.values()]
        moved += [
            RouteFacts("filled", (), (_target(entry),), reason=str(entry["fill"]), table=str(entry["table"]),
                       line=int(entry["line"]) or None)
            for entry in manifest.get("filled", ())
        ]  # fmt: skip
        ends = {end.name: end for route in moved for end in route.sources}
        checks = {str(entry["source"]): str(entry["constant"]) for entry in manifest["checks"]}
        others = _others(ends, checks, manifest["drops"], manifest["ties"], manifest["ignored"])
        return Routes(str(path), _joined(moved, others), tuple(manifest["source"]["prefixes"] or ()))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(path, f"its manifest is damaged ({type(error).__name__})", CONVERT_AGAIN) from None


def _recorded(entries: Sequence[TensorEntry]) -> RouteFacts:
    """The route of one row's tensors, with the sizes of the rule's axes if the shapes determine them."""
    entry = entries[0]
    sources = tuple(EndFacts(str(e["source"]), tuple(map(int, e["shape"])), str(e["dtype"])) for e in entries)
    targets = tuple(map(_target, entry["targets"]))
    rule, sizes = find_rule(str(entry["rule"])), {}
    if rule is not None:
        shapes = [tuple(end.shape or ()) for end in sources]
        with suppress(AxisError):
            combined = [combined_shape(entry["combine"], shapes)] if entry["combine"] else shapes
            sizes = rule.sizes(combined, [tuple(end.shape or ()) for end in targets])
    notes = ("recomputed: 16-bit storage ruins its values",) if entry["recomputed"] else ()
    return _moved(sources, targets, rule, sizes=sizes, combine=entry["combine"], table=str(entry["table"]),
                  line=int(entry["line"]) or None, notes=notes)  # fmt: skip


def _target(entry: TargetEntry) -> EndFacts:
    return EndFacts(str(entry["path"]), tuple(map(int, entry["shape"])), entry.get("dtype", "float32"))


def _others(
    ends: Mapping[str, EndFacts],
    checks: Mapping[str, str],
    drops: Mapping[str, str],
    ties: Mapping[str, str],
    ignored: Mapping[str, str],
) -> Iterator[RouteFacts]:
    """Yield routes that fill no variable; a manifest does not keep their shapes."""
    fates: tuple[tuple[Fate, Mapping[str, str]], ...] = (
        ("checked", checks), ("dropped", drops), ("tied", ties), ("ignored", ignored),
    )  # fmt: skip
    for fate, reasons in fates:
        for name, reason in reasons.items():
            yield RouteFacts(fate, (ends.get(name, EndFacts(name, None)),), reason=str(reason))


def _joined(moved: list[RouteFacts], others: Iterator[RouteFacts]) -> tuple[RouteFacts, ...]:
    """Join all routes; a tensor that fills a variable and is also compared or tied to has one route, with a note."""
    left, notes = [], dict[str, list[str]]()
    used = {end.name for route in moved for end in route.sources}
    for route in others:
        name = route.sources[0].name
        if route.fate == "checked" and name in used:
            notes.setdefault(name, []).append(f"{name} is also compared with {route.reason}")
            continue
        if route.fate == "tied":
            notes.setdefault(str(route.reason), []).append(f"{name} is tied to {route.reason}, bit for bit")
        left.append(route)
    annotated = [
        replace(route, notes=(*route.notes, *(text for end in route.sources for text in notes.get(end.name, ()))))
        for route in moved
    ]
    return (*annotated, *left)
