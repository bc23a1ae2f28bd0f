"""Numbers that remember from which arguments of which constructor the code of a PyTorch model computed them."""

from __future__ import annotations

import dis
import math
import operator
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from wdport.recording.code_constants import ComparedSize

ARITHMETIC: Mapping[str, tuple[Callable[[Any, Any], Any], str]] = MappingProxyType({
    "add": (operator.add, "+"), "sub": (operator.sub, "-"), "mul": (operator.mul, "*"),
    "floordiv": (operator.floordiv, "//"), "mod": (operator.mod, "%"), "truediv": (operator.truediv, "/"),
    "pow": (operator.pow, "**"),
})  # fmt: skip
"""The operators of numbers that remember how they were computed: name, function and symbol."""


@dataclass(eq=False)
class ConstructorCall:
    """One call of a class's ``__init__``: its arguments, and the defaults of those that have one, by name.

    A configuration object is such a call as well, with its attributes as arguments. Those of the configurations that a
    constructor is called with are its arguments too; ``configured`` are the configurations, by these arguments.
    ``attributes`` are the numbers of the object that was made which remember, and ``repeats`` those of which ``range``
    was made.
    """

    arguments: dict[str, Any] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)
    configured: dict[str, ConstructorCall] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)
    repeats: list[ArgumentNumber] = field(default_factory=list)

    def configure(self, configuration: ConstructorCall, values: Mapping[str, Any]) -> None:
        """Take the attributes of a configuration, with these values, as arguments; names that are taken stay."""
        for name, value in values.items():
            if name not in self.arguments:
                self.arguments[name], self.configured[name] = value, configuration

    def has(self, number: ArgumentNumber) -> bool:
        """Whether a number was computed from arguments of this call."""
        names = argument_names(number.expression_of_arguments)
        return all(self.configured.get(name, self) is number.owner for name in names)

    def __deepcopy__(self, memo: object) -> ConstructorCall:
        # A copied module was made by the same call.
        return self

    def names_of(self, number: int) -> set[str]:
        """The arguments that are this number."""
        return {name for name, value in self.arguments.items()
                if isinstance(value, int) and not isinstance(value, bool) and value == number}  # fmt: skip

    def remembered(self, name: str, value: Any) -> Any:
        """A number, or a tuple of numbers, that remembers that it is this argument; the numbers of a list, which others
        may hold and change, are replaced in it."""
        if type(value) is list:
            if all(isinstance(item, (int, float)) for item in value):
                value[:] = self.remembered(name, tuple(value))
            return value
        if type(value) is tuple:
            return tuple(_number(item, self, ArgumentExpression("index", (index,), name))
                         for index, item in enumerate(value))  # fmt: skip
        return _number(value, self, ArgumentExpression("argument", name=name))

    def made(self, value: Any) -> bool:
        """Whether a number, or the numbers of a tuple or list, remember an argument of this call."""
        return getattr(_first(value), "owner", None) is self


@dataclass(frozen=True)
class ArgumentExpression:
    """How a number was computed: the ``argument`` or the element ``index`` of the argument ``name``, the ``attribute``
    of this name, or an operator of operands."""

    operator: str
    operands: tuple[ArgumentExpression | float, ...] = ()
    name: str = ""


class ArgumentNumber:
    """What numbers that remember have in common: they compute like numbers."""

    owner: ConstructorCall
    expression_of_arguments: ArgumentExpression
    is_chosen = False
    """Whether a function such as ``max`` compared it, so that it may stand where others could."""

    def __reduce__(self) -> tuple[Any, ...]:
        number = plain_number(self)
        return type(number), (number,)

    def __copy__(self) -> ArgumentNumber:
        return self

    def __deepcopy__(self, memo: object) -> ArgumentNumber:
        return self

    def _compared(self, name: str, other: object) -> bool:
        frame = sys._getframe(2)
        # Not by an operator in Python code: by a function such as max, which chooses one of its arguments.
        if _remembers and dis.opname[frame.f_code.co_code[frame.f_lasti]] != "COMPARE_OP":
            for number in (self, other):
                if isinstance(number, ArgumentNumber):
                    number.is_chosen = True
        function: Callable[[Any, Any], bool] = getattr(operator, name)
        return function(plain_number(self), plain_number(other))

    def __lt__(self, other: object) -> bool:
        return self._compared("lt", other)

    def __gt__(self, other: object) -> bool:
        return self._compared("gt", other)

    def _computed(self, name: str, other: object, swapped: bool = False) -> Any:
        if not isinstance(other, (int, float)) or isinstance(other, (bool, ComparedSize)):
            return NotImplemented
        # Not a product with 1, since another instance may have another factor there.
        if type(other) is int and other == 0 and (name == "add" or (name == "sub" and not swapped)):
            return self
        function, symbol = ARITHMETIC[name]
        operands = (self, other) if not swapped else (other, self)
        value = function(*map(plain_number, operands))
        if isinstance(other, ArgumentNumber) and other.owner is not self.owner:
            return value
        number = _number(value, self.owner, ArgumentExpression(symbol, tuple(map(_operand, operands))))
        if isinstance(number, FloatArgument):
            number.of_integers = all(isinstance(operand, int) for operand in operands)
        return number

    def __neg__(self) -> Any:
        expression = self.expression_of_arguments
        is_negated = expression.operator == "-" and len(expression.operands) == 1
        inner = expression.operands[0] if is_negated else None
        expression = inner if isinstance(inner, ArgumentExpression) else ArgumentExpression("-", (expression,))
        return _number(-plain_number(self), self.owner, expression)


def remember_arithmetic(*kinds: type) -> None:
    """Give classes the operators of numbers, which their method ``_computed`` computes."""

    def method(name: str, swapped: bool) -> Callable[[Any, object], Any]:
        return lambda self, other: self._computed(name, other, swapped)

    for kind in kinds:
        for name in ARITHMETIC:
            setattr(kind, f"__{name}__", method(name, swapped=False))
            setattr(kind, f"__r{name}__", method(name, swapped=True))


class IntegerArgument(ArgumentNumber, int):
    """An integer that remembers."""


class FloatArgument(ArgumentNumber, float):
    """A floating-point number that remembers; ``of_integers`` if it was computed from integers."""

    of_integers = False


remember_arithmetic(ArgumentNumber)


class _Integer(type):
    """``int``, but for numbers that remember, of which it makes one that does."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        value = int(*args, **kwargs)
        number = args[0] if len(args) == 1 else None
        if not isinstance(number, ArgumentNumber):
            return value
        expression = number.expression_of_arguments
        if isinstance(number, FloatArgument):
            is_quotient = expression.operator == "/" and number.of_integers and value == float(number)
            expression = replace(expression, operator="//") if is_quotient else ArgumentExpression("int", (expression,))
        return _number(value, number.owner, expression)

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, int)

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, int)

    def __eq__(cls, other: object) -> bool:
        return other is int or other is cls

    def __hash__(cls) -> int:
        return hash(int)


class RememberingInteger(int, metaclass=_Integer):
    """What ``int`` is in the code of constructors while a model is built."""


class _Range(type):
    """``range``, which notes the numbers that remember."""

    def __call__(cls, *args: Any) -> range:
        if len(args) == 1 and isinstance(args[0], ArgumentNumber):
            args[0].owner.repeats.append(args[0])
        return range(*args)

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, range)


class RememberingRange(metaclass=_Range):
    """What ``range`` is in the code of constructors while a model is built."""


REMEMBERING: Mapping[str, type] = MappingProxyType({"int": RememberingInteger, "range": RememberingRange})
"""The classes that stand for those of Python, by name."""

_remembers: list[None] = []
"""As many elements as :func:`remembering` is entered."""


@contextmanager
def remembering(other_root: Callable[[Any, float], Any]) -> Iterator[None]:
    """Inside, code of a PyTorch model runs: ``math.sqrt`` of a number that remembers is one, too, and ``other_root``
    makes it of other numbers; functions such as ``max`` are noted."""
    plain_function = math.sqrt

    def sqrt(number: Any) -> Any:
        value = plain_function(number)
        if not isinstance(number, ArgumentNumber):
            return other_root(number, value)
        return _number(value, number.owner, ArgumentExpression("math.sqrt", (number.expression_of_arguments,)))

    math.sqrt = sqrt
    _remembers.append(None)
    try:
        yield
    finally:
        _remembers.pop()
        math.sqrt = plain_function


def plain_number(value: Any) -> Any:
    """The number alone."""
    if isinstance(value, ArgumentNumber):
        return int(value) if isinstance(value, int) else float(value)  # type: ignore[arg-type]
    return value


def _operand(value: Any) -> ArgumentExpression | float:
    return value.expression_of_arguments if isinstance(value, ArgumentNumber) else value


def _number(value: Any, owner: ConstructorCall, expression: ArgumentExpression) -> Any:
    number: IntegerArgument | FloatArgument
    if isinstance(value, bool) or not isinstance(value, (int, float)) or isinstance(value, ComparedSize):
        return value
    number = IntegerArgument(value) if isinstance(value, int) else FloatArgument(value)
    number.owner, number.expression_of_arguments = owner, expression
    return number


def _first(value: Any) -> Any:
    """The first element of a tuple or list that has one; any other value itself."""
    return value[0] if isinstance(value, (tuple, list)) and value else value


def is_argument(value: Any) -> bool:
    """Whether a number remembers arguments, or a tuple or list is one."""
    return isinstance(value, ArgumentNumber) or bool(_tuple_name(value))


def is_element(value: Any) -> bool:
    """Whether a number, or the first of several, is an element of an argument."""
    first = _first(value)
    return isinstance(first, ArgumentNumber) and first.expression_of_arguments.operator == "index"


def _tuple_name(value: Any) -> str:
    """The argument that a tuple or list of numbers is; "" if it is none."""
    first = value[0] if isinstance(value, (tuple, list)) and value else None
    if not isinstance(first, ArgumentNumber) or not first.expression_of_arguments.name:
        return ""
    name = first.expression_of_arguments.name
    whole_tuple = first.owner.arguments[name]
    indices = [ArgumentExpression("index", (index,), name) for index in range(len(value))]
    matches = isinstance(whole_tuple, (tuple, list)) and len(whole_tuple) == len(value) and all(
        isinstance(item, ArgumentNumber) and item.owner is first.owner and item.expression_of_arguments == index
        for item, index in zip(value, indices, strict=True))  # fmt: skip
    return name if matches else ""


def expressed(value: Any, owner: ConstructorCall) -> ArgumentExpression | float:
    """How a number was computed from the arguments of a constructor; the number itself if it was not."""
    if name := _tuple_name(value):
        if owner.has(value[0]):
            return ArgumentExpression("argument", name=name)
        return expressed(value[0].owner.arguments[name], owner)
    if not isinstance(value, ArgumentNumber) or value.is_chosen:
        other: float = plain_number(value)
        return other
    number: float = plain_number(value)
    if owner.has(value):
        return value.expression_of_arguments
    outer = _replaced(value.expression_of_arguments, value.owner, owner)
    return outer if isinstance(outer, ArgumentExpression) and has_arguments(outer) else number


def _replaced(expression: ArgumentExpression | float, inner: ConstructorCall, owner: ConstructorCall) -> Any:
    """An expression of the arguments of an inner constructor in terms of those that it was called with."""
    if not isinstance(expression, ArgumentExpression):
        return expression
    if expression.name:
        argument = inner.arguments[expression.name]
        if expression.operator == "index":
            argument = argument[expression.operands[0]]
        return expressed(argument, owner)
    operands = tuple(_replaced(operand, inner, owner) for operand in expression.operands)
    return ArgumentExpression(expression.operator, operands)


def replaced(
    expression: ArgumentExpression | float, others: Mapping[str, ArgumentExpression | float | str]
) -> ArgumentExpression | float:
    """An expression in which some arguments are numbers, or have other names."""
    if not isinstance(expression, ArgumentExpression):
        return expression
    other = others.get(expression.name, expression.name)
    if not isinstance(other, str):
        return other if expression.operator == "argument" else expression
    operands = tuple(replaced(operand, others) for operand in expression.operands)
    return ArgumentExpression(expression.operator, operands, other)


def with_attributes(
    expression: ArgumentExpression | float, attributes: Mapping[ArgumentExpression, str]
) -> ArgumentExpression | float:
    """An expression with attributes in place of what they are computed from."""
    if not isinstance(expression, ArgumentExpression):
        return expression
    if (name := attributes.get(expression)) is not None:
        return ArgumentExpression("attribute", name=name)
    return replace(expression, operands=tuple(with_attributes(operand, attributes) for operand in expression.operands))


def attribute_names(expression: ArgumentExpression | float) -> Iterator[str]:
    """The attributes of an expression."""
    if isinstance(expression, ArgumentExpression):
        yield from (expression.name,) if expression.operator == "attribute" else ()
        for operand in expression.operands:
            yield from attribute_names(operand)


def indexed_names(expression: ArgumentExpression | float) -> Iterator[str]:
    """The arguments of an expression that are tuples of which it takes elements."""
    if isinstance(expression, ArgumentExpression):
        yield from (expression.name,) if expression.operator == "index" else ()
        for operand in expression.operands:
            yield from indexed_names(operand)


def has_arguments(expression: ArgumentExpression | float) -> bool:
    return isinstance(expression, ArgumentExpression) and bool(
        expression.name or any(map(has_arguments, expression.operands))
    )


def argument_names(expression: ArgumentExpression | float) -> set[str]:
    """The arguments of an expression."""
    if not isinstance(expression, ArgumentExpression):
        return set()
    inner = (argument_names(operand) for operand in expression.operands)
    return {expression.name, *(name for names in inner for name in names)} - {""}
