"""Rows for layers, tensors and ties: convert one YAML mapping to checked rows and a tap."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import cast, get_args

from wdport.base.errors import did_you_mean
from wdport.mapping.axes import RULES, AxisError, Combine, FillValue, Rule, find_rule
from wdport.mapping.kinds.activations import ROW_NAMES
from wdport.mapping.kinds.kind import Inner, Kind, Part
from wdport.mapping.names import NamePattern
from wdport.mapping.rows import ConstantRow, Layer, Row, TapRow
from wdport.mapping.schema import FillRow, LayerRow, TensorRow, TieRow
from wdport.mapping.strict_yaml import Section, YamlFields, YamlNode

KindsNamed = Callable[[str], Collection[str]]

_ARITHMETIC = tuple(name for name in get_args(Combine) if name)
_CONSTANTS = get_args(FillValue)


def parse_row(node: YamlNode, where: str, section: Section) -> Row:
    """Parse a row of format 1: one tensor."""
    fields = YamlFields(node, where)
    torch = fields.pattern("torch", section.torch, ".")
    return _row(fields, section, (torch,), "", {}, section.when)


def parse_tensors(node: YamlNode, where: str, section: Section) -> Row:
    """Parse a row of format 2: one or more tensors that fill one or more variables."""
    fields = YamlFields(node, where, TensorRow.__annotations__)
    torch = fields.patterns("torch", section.torch, ".")
    if not torch:
        raise fields.fault("torch is missing", "give a name, or a list of names")
    combine = _combine(fields, len(torch))
    return _row(fields, section, torch, combine, fields.sizes(), fields.when(section))


def parse_tie(node: YamlNode, where: str, section: Section) -> Row:
    """Parse a row of `tied`: a tensor that, if present, equals another one bit for bit."""
    fields = YamlFields(node, where, TieRow.__annotations__)
    torch, same_as = (fields.pattern(name, section.torch, ".") for name in ("torch", "same_as"))
    when = fields.when(section)
    fields.same_indices(torch, [same_as])
    if torch == same_as:
        raise fields.fault(f"{torch.text} is tied to itself", "name the tensor that it equals under same_as")
    return Row(node.line, (torch,), same_as=same_as, when=when, optional=True)


def parse_fill(node: YamlNode, where: str, section: Section) -> ConstantRow:
    """Parse a row of `filled`: variables that no tensor fills, and their constant."""
    fields = YamlFields(node, where, FillRow.__annotations__)
    keras, when = fields.pattern("keras", section.keras, "/"), fields.when(section)
    if (fill := fields.text("fill")) not in _CONSTANTS:
        raise fields.fault(f"fill is {fill!r}", f"use one of {', '.join(_CONSTANTS)}")
    return ConstantRow(node.line, keras, cast(FillValue, fill), when)


def _combine(fields: YamlFields, count: int) -> Combine:
    text = fields.optional_text("combine") or ""
    if text and text not in _ARITHMETIC:
        raise fields.fault(f"unknown arithmetic {text!r}", f"use one of {', '.join(_ARITHMETIC)}")
    if text and (count < 2 or (text == "weight_norm" and count != 2)):
        requirement = "a magnitude and a direction" if text == "weight_norm" else "at least two tensors"
        raise fields.fault(f"{text} does not take {count} tensors", f"list {requirement} under torch")
    return cast(Combine, text)


def _row(
    fields: YamlFields,
    section: Section,
    torch: tuple[NamePattern, ...],
    combine: Combine,
    sizes: Mapping[str, int],
    when: str | None,
) -> Row:
    keras = fields.patterns("keras", section.keras, "/")
    rule_name, drop = fields.optional_text("rule"), fields.optional_text("drop")
    check = fields.pattern("check") if fields.has("check") else None
    digest = fields.optional_text("digest") or ""
    optional = fields.flag("optional")
    fields.finish(TensorRow.__annotations__)
    rule = _rule(fields, rule_name) if rule_name else None
    # The fields are read before they are judged, so that an unknown field is reported first.
    if bool(keras) != bool(rule):
        raise fields.fault("keras and rule go together", "give both or neither")
    if [bool(keras), bool(drop)].count(True) + (check is not None and not keras) != 1 or (drop and check):
        raise fields.fault("a row must do exactly one thing", "use exactly one of: keras + rule, check, drop")
    if rule:
        _counts(fields, rule, 1 if combine else len(torch), len(keras))
        if unknown := [name for name in sizes if name not in rule.source.names]:
            raise fields.fault(f"sizes names {unknown[0]}, which is not an axis of {rule}", "use the names of its axes")
    if digest and not drop:
        raise fields.fault("digest goes with drop", "leave it out")
    if (check or drop) and len(torch) > 1:
        raise fields.fault("check and drop are about one tensor", "write a row for each")
    fields.same_indices(torch[0], (*torch[1:], *keras, *((check,) if check else ())))
    return Row(fields.line, torch, keras, (rule,) if rule else (), combine, sizes, check, drop, digest, when=when,
               optional=optional)  # fmt: skip


def _rule(fields: YamlFields, text: str) -> Rule:
    try:
        rule = find_rule(text)
    except AxisError as error:
        raise fields.fault(str(error), "name every axis once on each side, as in `out in -> in out`") from None
    if rule is None:
        fix = did_you_mean(text, RULES, "use a name from docs/mapping.md, or write it out, as in `out in -> in out`")
        raise fields.fault(f"unknown rule {text!r}", fix)
    return rule


def _counts(fields: YamlFields, rule: Rule, sources: int, targets: int) -> None:
    """Check the numbers of tensors: a stacked axis is a list, one tensor per label if it has labels; else one
    tensor."""
    for side, count, verb, field in ((rule.source, sources, "take", "torch"), (rule.target, targets, "make", "keras")):
        expected = len(dict(side.labels).get(side.stacked, ())) if side.stacked else 1
        if (count > 1) != bool(side.stacked) or (expected and expected != count):
            raise fields.fault(
                f"rule {rule.name} does not {verb} {count} tensors", f"list the right number under {field}"
            )


def parse_layer(
    node: YamlNode, where: str, section: Section, number: int, kinds: Mapping[str, Kind], named: KindsNamed
) -> tuple[list[Row], list[TapRow]]:
    """Return the rows of a layer's tensors and its taps; ``number`` is the layer's, ``kinds`` are those it may name,
    and ``named`` finds kinds by other names."""
    fields = YamlFields(node, where, LayerRow.__annotations__)
    torch, keras = fields.pattern("torch", section.torch, "."), fields.pattern("keras", section.keras, "/")
    # Outside of a section, the dot is the model itself, whose output is compared in any case.
    is_model = section.torch is None and torch.text == "."
    torch = NamePattern("") if is_model else torch
    kind = _kind(fields, kinds, named)
    names = _names(fields, kind)
    order = _order(fields, kind, kinds)
    tap = _tap(fields, torch, keras, kind, order, fields.when(section))
    tap = replace(tap, formerly=_formerly(fields, torch, names))
    # A stacked RNN is one module of PyTorch and a Keras layer for each of its layers: the index is only in Keras's
    # name.
    index = kind.index if kind and kind.index in set(keras.indices) - set(torch.indices) else ""
    fields.same_indices(NamePattern(f"{torch.text}<{index}>" if index else torch.text), [keras])
    layer = Layer(number, node.line, torch, tap.optional, bare=kind is not None and kind.bare)
    expand = _Expansion(fields, layer, tap, {**names, "layer": f"<{index}>" if index else "0"}, order)
    rows = [row for part in (kind.parts if kind else ()) for row in expand.rows(part)]
    _known_sizes(fields, tap, rows)
    # Of several stacked layers only the last is compared: its output is that of the PyTorch module.
    inner = kind.inner if kind else ()
    taps = [] if is_model else [replace(tap, stack=keras)] if index else [tap]
    taps += map(expand.inner, () if index else inner)
    return rows, taps


def _kind(fields: YamlFields, kinds: Mapping[str, Kind], named: KindsNamed) -> Kind | None:
    if (name := fields.optional_text("kind")) is None:
        return None
    if name not in kinds:
        raise fields.fault(f"unknown kind {name!r}", _meant(name, kinds, named))
    return kinds[name]


def _meant(name: str, kinds: Mapping[str, Kind], named: KindsNamed) -> str:
    """What to do about a kind that no table may name."""
    meant = named(name)
    if tabled := [kind for kind in meant if kind in kinds]:
        return f"did you mean {' or '.join(tabled)}?"
    if meant:
        return "a layer without weights: leave out its kind, and state axes if they change"
    return did_you_mean(name, kinds, "use one of docs/mapping.md")


def _names(fields: YamlFields, kind: Kind | None) -> dict[str, str]:
    """Return the kind's suffixes within the PyTorch module, with the row's changes."""
    allowed = dict(kind.names) if kind else {}
    changes = fields.names()
    for name in changes:
        if name not in allowed:
            what = f"{kind.name} has no name {name!r}" if kind else "names without a kind"
            fix = did_you_mean(name, allowed, f"use {', '.join(allowed)}") if allowed else "remove it"
            raise fields.fault(what, fix)
    return allowed | changes


def _formerly(
    fields: YamlFields, torch: NamePattern, names: Mapping[str, str]
) -> tuple[tuple[NamePattern, NamePattern], ...]:
    """Return old names of submodules and tensors, each with its current name."""
    renamings = []
    for name, was in fields.formerly().items():
        if name not in names:
            raise fields.fault(
                f"formerly has {name!r}", did_you_mean(name, names, f"use {', '.join(names) or 'a kind'}")
            )
        old, new = fields.join(was, torch.text, "."), fields.join(names[name], torch.text, ".")
        fields.same_indices(old, [new])
        renamings.append((old, new))
    return tuple(renamings)


def _order(fields: YamlFields, kind: Kind | None, kinds: Mapping[str, Kind]) -> Rule | None:
    """Return the order of flattened features, as a rule on both flattened axes."""
    text = fields.optional_text("flatten")
    if text is None:
        return None
    if kind is None or not kind.flattens:
        can = ", ".join(name for name, kind in kinds.items() if kind.flattens)
        raise fields.fault(
            f"{kind.name if kind else 'a row without a kind'} does not take flatten", f"use it with: {can}"
        )
    rule = fields.rule(text)
    if rule.source.stacked or rule.target.stacked or rule.source.any_axes or not rule.source.names:
        raise fields.fault(f"flatten is {text!r}", "write the axes of both sides, as in `c h w -> h w c`")
    return rule


def _tap(
    fields: YamlFields, torch: NamePattern, keras: NamePattern, kind: Kind | None, order: Rule | None, when: str | None
) -> TapRow:
    up_to, axes = fields.optional_text("up_to"), fields.optional_text("axes")
    if up_to not in (None, "shift"):
        raise fields.fault(f"up_to is {up_to!r}", "write `up_to: shift`, or leave it out")
    stated = (fields.rule(axes),) if axes is not None else kind.axes if kind else ()
    if any(rule.source.stacked or rule.target.stacked for rule in stated):
        raise fields.fault(f"axes is {axes!r}", "write one tensor on each side, as in `b c h w -> b h w c`")
    if kind and kind.flatten and order and axes is None:
        stated = (fields.rule(_flattened(kind.flatten, order)),)
    return TapRow(
        line=fields.line,
        torch=torch,
        keras=keras,
        kind=kind.name if kind else "",
        axes=stated,
        then=_then(fields),
        shift=up_to is not None,
        optional=fields.flag("optional"),
        when=when,
        sizes=fields.sizes(),
        flatten=fields.rule(_flattened("({torch}) -> ({keras})", order)) if order else None,
    )


def _then(fields: YamlFields) -> str:
    text = fields.optional_text("then") or ""
    if text and text not in ROW_NAMES:
        raise fields.fault(f"then is {text!r}", f"use one of {', '.join(ROW_NAMES)}")
    return text


def _flattened(template: str, order: Rule) -> str:
    """Return a rule's text with the two orders in place of ``{torch}`` and ``{keras}``."""
    return template.format(torch=order.source, keras=order.target)


def _known_sizes(fields: YamlFields, tap: TapRow, rows: list[Row]) -> None:
    rules = [*tap.axes, *(rule for row in rows for rule in row.rules)]
    axis_names = {name for rule in rules for name in rule.source.names}
    for name in tap.sizes:
        if name not in axis_names:
            raise fields.fault(
                f"sizes names {name}, which is not an axis of the layer", "use the names of flatten or axes"
            )


@dataclass(frozen=True)
class _Expansion:
    """One layer row, and the values for the placeholders of its kind."""

    fields: YamlFields
    layer: Layer
    tap: TapRow
    names: Mapping[str, str]
    order: Rule | None

    def rows(self, part: Part) -> list[Row]:
        """Return the rows of one part; more than one if PyTorch stores it in several formats."""
        filled = replace(
            part,
            torch=tuple(name.format_map(self.names) for name in part.torch),
            keras=self._paths(part.keras),
            others=tuple(self._paths(texts) for texts in part.others),
        )
        rules = part.rules
        if self.order and part.flatten:
            rules = (self.fields.rule(_flattened(part.flatten, self.order)),)
        return [self._row(alternative, rules) for alternative in filled.alternatives()]

    def _paths(self, texts: tuple[str, ...]) -> tuple[str, ...]:
        names = {name: text.replace(".", "/") for name, text in self.names.items()}
        return tuple(text.format_map(names) for text in texts)

    def _row(self, part: Part, rules: tuple[Rule, ...]) -> Row:
        keras = tuple(self._pattern(self.tap.keras, "/", text) for text in part.keras)
        others = (tuple(self._pattern(self.tap.keras, "/", text) for text in texts) for texts in part.others)
        return Row(
            self.layer.line,
            tuple(self._pattern(self.tap.torch, ".", text) for text in part.torch),
            keras,
            rules,
            part.combine,
            self.tap.sizes,
            drop=part.drop,
            when=self.tap.when,
            optional=self.layer.optional,
            layer=self.layer,
            others=tuple(patterns for patterns in dict.fromkeys(others) if patterns != keras),
        )

    def inner(self, inner: Inner) -> TapRow:
        """Return the tap of a sublayer."""
        first, *others = dict.fromkeys(self._paths(inner.keras))
        return TapRow(
            line=self.layer.line,
            torch=self._pattern(self.tap.torch, ".", inner.torch.format_map(self.names)),
            keras=self._pattern(self.tap.keras, "/", first),
            shift=inner.shift,
            implied=True,
            others=tuple(self._pattern(self.tap.keras, "/", other) for other in others),
            when=self.tap.when,
        )

    def _pattern(self, base: NamePattern, joint: str, suffix: str) -> NamePattern:
        return self.fields.join(suffix, base.text, joint)
