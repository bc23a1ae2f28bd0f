"""Rows for tensors and ties: convert one YAML mapping to a checked :class:`Row`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast, get_args

from wdport.errors import did_you_mean
from wdport.mapping.axes import AxisError, Combine, Rule
from wdport.mapping.catalog import RULES, find_rule
from wdport.mapping.fields import Fields, Section
from wdport.mapping.form import TensorRow, TieRow
from wdport.mapping.names import NamePattern
from wdport.mapping.rows import Row
from wdport.mapping.strict_yaml import Node

_ARITHMETIC = tuple(name for name in get_args(Combine) if name)


def parse_row(node: Node, where: str, section: Section) -> Row:
    """Parse a row of format 1: one tensor."""
    fields = Fields(node, where)
    torch = fields.pattern("torch", section.torch, ".")
    return _row(fields, section, (torch,), "", {}, section.when)


def parse_tensors(node: Node, where: str, section: Section) -> Row:
    """Parse a row of format 2: one or more tensors that fill one or more variables."""
    fields = Fields(node, where, TensorRow.__annotations__)
    torch = fields.patterns("torch", section.torch, ".")
    if not torch:
        raise fields.fault("torch is missing", "give a name, or a list of names")
    combine = _combine(fields, len(torch))
    return _row(fields, section, torch, combine, fields.sizes(), fields.when(section))


def parse_tie(node: Node, where: str, section: Section) -> Row:
    """Parse a row of `tied`: a tensor that, if present, equals another one bit for bit."""
    fields = Fields(node, where, TieRow.__annotations__)
    torch, same_as = (fields.pattern(name, section.torch, ".") for name in ("torch", "same_as"))
    when = fields.when(section)
    fields.same_indices(torch, [same_as])
    if torch == same_as:
        raise fields.fault(f"{torch.text} is tied to itself", "name the tensor that it equals under same_as")
    return Row(node.line, (torch,), same_as=same_as, when=when, optional=True)


def _combine(fields: Fields, count: int) -> Combine:
    text = fields.optional_text("combine") or ""
    if text and text not in _ARITHMETIC:
        raise fields.fault(f"unknown arithmetic {text!r}", f"use one of {', '.join(_ARITHMETIC)}")
    if text and (count < 2 or (text == "weight_norm" and count != 2)):
        requirement = "a magnitude and a direction" if text == "weight_norm" else "at least two tensors"
        raise fields.fault(f"{text} does not take {count} tensors", f"list {requirement} under torch")
    return cast(Combine, text)


def _row(
    fields: Fields,
    section: Section,
    torch: tuple[NamePattern, ...],
    combine: Combine,
    sizes: Mapping[str, int],
    when: str | None,
) -> Row:
    keras = fields.patterns("keras", section.keras, "/")
    rule_name, drop = fields.optional_text("rule"), fields.optional_text("drop")
    check = fields.pattern("check") if fields.has("check") else None
    optional = fields.flag("optional")
    fields.finish(TensorRow.__annotations__)
    rule = _rule(fields, rule_name) if rule_name else None
    if bool(keras) != bool(rule):
        raise fields.fault("keras and rule go together", "give both or neither")
    if [bool(keras), bool(drop)].count(True) + (check is not None and not keras) != 1 or (drop and check):
        raise fields.fault("a row must do exactly one thing", "use exactly one of: keras + rule, check, drop")
    if rule:
        _counts(fields, rule, 1 if combine else len(torch), len(keras))
        if unknown := [name for name in sizes if name not in rule.source.names]:
            raise fields.fault(f"sizes names {unknown[0]}, which is not an axis of {rule}", "use the names of its axes")
    if (check or drop) and len(torch) > 1:
        raise fields.fault("check and drop are about one tensor", "write a row for each")
    fields.same_indices(torch[0], (*torch[1:], *keras, *((check,) if check else ())))
    return Row(
        fields.line, torch, keras, (rule,) if rule else (), combine, sizes, check, drop, when=when, optional=optional
    )


def _rule(fields: Fields, text: str) -> Rule:
    try:
        rule = find_rule(text)
    except AxisError as error:
        raise fields.fault(str(error), "name every axis once on each side, as in `out in -> in out`") from None
    if rule is None:
        fix = did_you_mean(text, RULES, "use a name from docs/mapping.md, or write it out, as in `out in -> in out`")
        raise fields.fault(f"unknown rule {text!r}", fix)
    return rule


def _counts(fields: Fields, rule: Rule, sources: int, targets: int) -> None:
    """Check the numbers of tensors: a stacked axis is a list, one tensor per label if it has labels; else one
    tensor."""
    for side, count, verb, field in ((rule.source, sources, "take", "torch"), (rule.target, targets, "make", "keras")):
        expected = len(dict(side.labels).get(side.stacked, ())) if side.stacked else 1
        if (count > 1) != bool(side.stacked) or (expected and expected != count):
            raise fields.fault(
                f"rule {rule.name} does not {verb} {count} tensors", f"list the right number under {field}"
            )
