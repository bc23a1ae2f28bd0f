"""Pieces of source text with constants that may become arguments of a constructor."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from wdport.porting.traced_arguments import ArgumentExpression, is_argument

ATOM, POWER, UNARY, PRODUCT, SUM, COMPARISON, LOOSE = range(7)
"""How tightly an expression is bound, the tightest first."""

LEVELS = {"**": POWER, "*": PRODUCT, "/": PRODUCT, "//": PRODUCT, "%": PRODUCT, "@": PRODUCT, "+": SUM, "-": SUM,
          "<": COMPARISON, ">": COMPARISON, "<=": COMPARISON, ">=": COMPARISON, "==": COMPARISON,
          "!=": COMPARISON}  # fmt: skip


@dataclass(frozen=True)
class Literal:
    """A number or a text of the traced model; ``hint`` is the name of the argument that receives it."""

    value: Any
    hint: str = ""

    def __str__(self) -> str:
        return literal(self.value)


@dataclass(frozen=True)
class Code:
    """An expression: texts and constants."""

    parts: tuple[str | Literal, ...]
    level: int = ATOM

    def inside(self, level: int) -> tuple[str | Literal, ...]:
        """The parts, in parentheses if they are bound less tightly than ``level``."""
        return ("(", *self.parts, ")") if self.level > level else self.parts

    def __str__(self) -> str:
        return "".join(map(str, self.parts))


def text(value: str) -> Code:
    return Code((value,))


def constant(value: Any, hint: str = "") -> Code:
    if isinstance(value, tuple) and any(map(is_argument, value)) and not is_argument(value):
        return listed([constant(item, hint) for item in value])
    negative = isinstance(value, (int, float)) and not isinstance(value, bool) and value < 0
    return Code((Literal(value, hint),), UNARY if negative else ATOM)


def binary(operator: str, first: Code, second: Code) -> Code:
    level = LEVELS[operator]
    if operator == "**":
        return Code((*first.inside(ATOM), "**", *second.inside(UNARY)), POWER)
    # Operators of one level are computed from the left.
    return Code((*first.inside(level), f" {operator} ", *second.inside(level - 1)), level)


def expression_code(expression: ArgumentExpression | float, prefix: str) -> Code:
    """An expression of arguments; ``prefix`` stands before their names, such as ``self.``."""
    if not isinstance(expression, ArgumentExpression):
        return constant(expression)
    if expression.operator == "argument":
        return text(f"{prefix}{expression.name}")
    if expression.operator == "attribute":
        return text(f"self.{expression.name}")
    if expression.operator == "index":
        return text(f"{prefix}{expression.name}[{expression.operands[0]}]")
    operands = [expression_code(operand, prefix) for operand in expression.operands]
    if expression.operator in ("math.sqrt", "int"):
        return call(expression.operator, operands)
    if len(operands) == 1:
        return Code(("-", *operands[0].inside(ATOM)), UNARY)
    return binary(expression.operator, *operands)


def listed(codes: Sequence[Code], brackets: str = "()") -> Code:
    inner = joined(codes)
    comma = "," if len(codes) == 1 and brackets == "()" else ""
    return Code((brackets[0], *inner, comma, brackets[1]))


def joined(codes: Iterable[Code]) -> tuple[str | Literal, ...]:
    parts: list[str | Literal] = []
    for index, code in enumerate(codes):
        parts += [", "] if index else []
        parts += code.parts
    return tuple(parts)


def call(function: str, args: Sequence[Code], kwargs: Sequence[tuple[str, Code]] = ()) -> Code:
    return Code((f"{function}(", *joined([*args, *(Code((f"{key}=", *code.parts)) for key, code in kwargs)]), ")"))


def literal(value: Any) -> str:
    """A value as source text."""
    if isinstance(value, float):
        if math.isinf(value):
            return "-math.inf" if value < 0 else "math.inf"
        if math.isnan(value):
            return "math.nan"
        shortest = f"{value:g}" if float(f"{value:g}") == value else repr(value)
        shortest = re.sub(r"e([+-]?)0*(\d)", lambda match: f"e{match.group(1).strip('+')}{match.group(2)}", shortest)
        return shortest if any(letter in shortest for letter in ".en") else f"{shortest}.0"
    if isinstance(value, tuple):
        inner = ", ".join(map(literal, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    return f'"{value}"' if isinstance(value, str) else str(value)
