"""Group the instances of a model into classes: of one class of PyTorch, with equal statements up to constants.

Constants that differ between instances become arguments of the constructor, with the names that PyTorch's have.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any

from wdport.mapping.kinds.kind import KerasCall
from wdport.porting.lowering.keras_graph import unused
from wdport.porting.settings import equal
from wdport.porting.source.body import Body
from wdport.porting.source.call_methods import CALL
from wdport.porting.source.code import Code, Literal, literal
from wdport.porting.source.names import allowed
from wdport.porting.source.scopes import Scope
from wdport.porting.traced_arguments import (
    ArgumentExpression,
    ConstructorCall,
    argument_names,
    attribute_names,
    expressed,
    has_arguments,
    indexed_names,
    is_argument,
    plain_number,
    replaced,
    with_attributes,
)


@dataclass
class Attribute:
    """An attribute of an instance: its name, and where it is in a list, if it is in one."""

    name: str
    index: int | None = None

    @property
    def expression(self) -> str:
        return self.name if self.index is None else f"{self.name}[{self.index}]"

    @property
    def path(self) -> str:
        """Its path in the Keras model."""
        return self.name if self.index is None else f"{self.name}/{self.index}"


@dataclass(frozen=True)
class SourceLine:
    """A line of a class: of the constructor, if it makes an attribute, of a method, or of the call."""

    code: Code
    attribute: str = ""
    method: str = ""

    @property
    def key(self) -> object:
        """What is equal in instances of one class: everything but constants."""
        parts = tuple(part if isinstance(part, str) else None for part in self.code.parts)
        return self.attribute, self.method, parts


@dataclass
class Instance:
    """A module of the model that is an instance of a class of the port.

    Attributes:
        path: its path in the PyTorch model.
        scope: its first call.
        parts: the paths of its own layers, variables and inner instances, with their attributes.
        bodies: its call, and the methods for other ways to call it, by name.
        layers: the constructors of its layers, also of those in sequential parts, by path.
        lines: the lines of the constructor, then those of the call.
    """

    path: str
    scope: Scope
    parts: dict[str, Attribute] = field(default_factory=dict)
    bodies: dict[str, Body] = field(default_factory=dict)
    layers: dict[str, KerasCall] = field(default_factory=dict)
    lines: list[SourceLine] = field(default_factory=list)
    class_: Class | None = None

    @property
    def type(self) -> str:
        module = self.scope.node.module
        assert module is not None
        return module.type

    @property
    def body(self) -> Body:
        return self.bodies[CALL]

    @property
    def signatures(self) -> dict[str, tuple[str, ...]]:
        """The parameters of its methods."""
        return {name: body.parameters for name, body in self.bodies.items()}

    @property
    def skeleton(self) -> str:
        """What instances of one class have in common."""
        return repr((self.signatures, [line.key for line in self.lines]))


@dataclass
class ClassLine:
    """A line of a class, and the constants that each of its instances has in it; an instance without it has none."""

    line: SourceLine
    constants: dict[str, list[Literal]]


@dataclass(frozen=True)
class Switch:
    """What tells some instances of a class from the others: an optional attribute that just they have or, with
    ``value``, an argument that has this value in just them; zeros in a tuple are any number of them."""

    paths: frozenset[str]
    name: str
    value: Any = None

    def text(self, holds: bool, prefix: str, name: str) -> str:
        """The condition, or its opposite, with the argument's name in the source."""
        if self.value is None and prefix:
            return f"{prefix}{self.name} is {'not ' if holds else ''}None"
        if isinstance(self.value, tuple):
            return f"{'not ' if holds else ''}any({prefix}{name})"
        if self.value is None or isinstance(self.value, bool):
            return f"{'' if holds == (self.value is not False) else 'not '}{prefix}{name}"
        return f"{prefix}{name} {'==' if holds else '!='} {literal(self.value)}"


Facts = Mapping[str, Mapping[str, Any]]
"""The arguments of the constructor of each instance, and its attributes that are true or false, by path."""


@dataclass
class Class:
    """A class of the port.

    Attributes:
        name: its name.
        instances: its instances.
        lines: its lines, those of the constructor first.
        switches: what tells the instances that have a line from the others.
        parameters: the arguments of the constructor, by name, each with the values of instances by path.
        defaults: the defaults of arguments.
        names: the arguments by their names in PyTorch's constructor.
        attributes: the attributes that the constructor computes from arguments.
        expressions: what stands for a constant, by the line and the constant's number in it.
    """

    name: str
    instances: list[Instance]
    lines: list[ClassLine] = field(default_factory=list)
    switches: list[Switch] = field(default_factory=list)
    parameters: dict[str, dict[str, Literal]] = field(default_factory=dict)
    defaults: dict[str, Literal] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    attributes: dict[str, ArgumentExpression | float] = field(default_factory=dict)
    expressions: dict[tuple[int, int], ArgumentExpression | float] = field(default_factory=dict)

    @property
    def body(self) -> Body:
        return self.instances[0].body

    @property
    def type(self) -> str:
        return self.instances[0].type

    @property
    def docstring(self) -> str:
        """What its docstring says: the first sentence of that of PyTorch's class, and the class."""
        module = self.instances[0].scope.node.module
        summary = module.summary if module is not None else ""
        if not summary:
            return f"{self.type}."
        line = f"{summary} ({self.type})."
        return line if len(line) <= MOST_CHARACTERS else f"{summary}.\n\n    {self.type}.\n    "

    @property
    def paths(self) -> frozenset[str]:
        return frozenset(instance.path for instance in self.instances)

    @property
    def inputs(self) -> dict[str, frozenset[str]]:
        """The inputs of the call, those of every instance first, and the instances that are called with each."""
        return inputs_of(self.instances)

    @property
    def optional_inputs(self) -> dict[str, frozenset[str]]:
        """The inputs that are ``None`` for some instances, and the other instances."""
        return {name: paths for name, paths in self.inputs.items() if paths != self.paths}

    @property
    def flags(self) -> dict[str, frozenset[str]]:
        """The optional attributes, and the instances that have them."""
        return {switch.name: switch.paths for switch in self.switches if switch.value is None}

    @property
    def required(self) -> list[str]:
        """The arguments that every instance has, without a default."""
        return [name for name, values in self.parameters.items()
                if frozenset(values) == self.paths and name not in self.defaults]  # fmt: skip

    @property
    def lengths(self) -> dict[str, int]:
        """The lengths of tuples among the arguments whose elements the constructor takes one by one."""
        elements = {name for expression in (*self.expressions.values(), *self.attributes.values())
                    for name in indexed_names(expression)}  # fmt: skip
        columns = {name: {len(one.value) if isinstance(one.value, tuple) else None for one in values.values()}
                   for name, values in self.parameters.items() if name in elements}  # fmt: skip
        # Where instances have tuples of several lengths, or none, nothing is required.
        return {name: length for name, (length, *others) in columns.items() if length is not None and not others}

    @property
    def decided(self) -> dict[str, tuple[Any, ...]]:
        """The texts and tuples among the arguments from which nothing is computed, but a branch is taken, with the
        values that PyTorch's have; a number that is 0 or 1 there may be any other."""
        computed = {name for expression in (*self.expressions.values(), *self.attributes.values())
                    for name in argument_names(expression)}  # fmt: skip
        names = [self.names.get(switch.name, switch.name) for switch in self.switches if switch.value is not None]
        columns = {name: [plain_number(self.parameters[name][one.path].value) for one in self.instances]
                   for name in dict.fromkeys(names) if name in self.parameters and name not in computed}  # fmt: skip
        return {name: tuple({literal(value): value for value in values}.values()) for name, values in columns.items()
                if any(isinstance(value, (str, tuple)) for value in values)}  # fmt: skip

    def condition(self, paths: frozenset[str], prefix: str = "self.") -> str:
        """The condition under which an instance is one of these."""
        if prefix and (name := self.deciding_input(paths)):
            return f"{name} is {'not ' if self.inputs[name] == paths else ''}None"
        switch = next(one for one in self.switches if one.paths in (paths, self.paths - paths))
        return switch.text(switch.paths == paths, prefix, self.names.get(switch.name, switch.name))

    def deciding_input(self, paths: frozenset[str]) -> str:
        """The input that tells these instances from the others; "" if there is none."""
        return next(
            (name for name, called in self.optional_inputs.items() if called in (paths, self.paths - paths)), ""
        )

    def arguments(self, instance: Instance) -> list[tuple[str, Literal]]:
        """The arguments that make an instance."""
        flags = [(name, Literal(True, name)) for name, paths in self.flags.items() if instance.path in paths]
        stated = [(name, values[instance.path]) for name, values in self.parameters.items()
                  if instance.path in values and not self._is_default(name, values[instance.path])]  # fmt: skip
        return stated + flags

    def _is_default(self, name: str, value: Literal) -> bool:
        default = self.defaults.get(name)
        return default is not None and not is_argument(value.value) and value.value == default.value

    def find_parameters(
        self, constructors: Mapping[str, ConstructorCall], facts: Facts, reserved: frozenset[str]
    ) -> None:
        """Name the constants that PyTorch's constructors computed from their arguments, and others that differ."""
        used = {
            *self.inputs, *(name for parameters in self.instances[0].signatures.values() for name in parameters),
            *reserved, *IMPORTED, *self.body.methods, *self.instances[0].bodies,
            *(line.line.attribute for line in self.lines),
        }  # fmt: skip
        columns: dict[tuple[int, int], dict[str, Literal]] = {}
        for number, line in enumerate(self.lines):
            for place in range(len(next(iter(line.constants.values()), []))):
                columns[number, place] = {path: constants[place] for path, constants in line.constants.items()}
        if self.paths <= constructors.keys():
            self._find_expressions(columns, {path: constructors[path] for path in self.paths}, used)
        self._find_values(columns, facts, used)
        for switch in self.switches:
            if switch.value is not None and switch.name not in self.names:
                values = {path: Literal(_argument(constructors.get(path), switch.name, facts[path]))
                          for path in self.paths}  # fmt: skip
                self.names[switch.name] = self._same_parameter(values) or unused(
                    allowed(switch.name), {*used, *self.parameters}
                )
                self.parameters[self.names[switch.name]] = values

    def _find_expressions(
        self, columns: Mapping[tuple[int, int], Mapping[str, Literal]], constructors: Mapping[str, ConstructorCall],
        used: set[str],
    ) -> None:  # fmt: skip
        """Find the constants that are computed in the same way in every instance."""
        for place, column in columns.items():
            expressions = [expressed(constant.value, constructors[path]) for path, constant in column.items()]
            if has_arguments(expressions[0]) and all(other == expressions[0] for other in expressions):
                self.expressions[place] = expressions[0]
        flowing = {name for expression in self.expressions.values() for name in argument_names(expression)}
        for place, column in columns.items():
            # Numbers that the graph does not have from the constructor: lengths of lists, and shapes.
            hint = next(iter(column.values())).hint
            if hint in ("depth", "shape") and place not in self.expressions:
                equal_names = [constructors[path].names_of(constant.value) for path, constant in column.items()]
                names = set.intersection(*equal_names)
                if hint == "depth":
                    repeated = [_repeated(constructors[path], constant.value) for path, constant in column.items()]
                    is_loop = not self._is_indexed(self.lines[place[0]].line.attribute)
                    if is_loop and repeated[0] is not None and all(one == repeated[0] for one in repeated):
                        self.expressions[place] = repeated[0]
                        continue
                    counts = {name for name in names if _COUNT.match(name) and name not in flowing}
                    names = counts or {name for name in names if name not in flowing or _COUNT.match(name)}
                    names = set() if self._is_indexed(self.lines[place[0]].line.attribute) else names
                # Of several with this number, the one that the line computes its values from.
                beside = {name for other, expression in self.expressions.items() if other[0] == place[0]
                          for name in argument_names(expression)}  # fmt: skip
                names = names & beside if hint == "shape" and len(names & beside) == 1 else names
                if len(names) == 1:
                    self.expressions[place] = ArgumentExpression("argument", name=names.pop())
        numbers = self._never_stated(constructors)
        for place, expression in list(self.expressions.items()):
            self.expressions[place] = replaced(expression, numbers)
            if not has_arguments(self.expressions[place]):
                del self.expressions[place]
        flowing = {name for expression in self.expressions.values() for name in argument_names(expression)}
        for name in constructors[min(constructors)].arguments:
            values = [constructor.arguments.get(name) for constructor in constructors.values()]
            if name in flowing:
                word = f"{name}_rate" if allowed(name) in used and isinstance(values[0], float) else name
                self.names[name] = unused(allowed(word), used)
                used.add(self.names[name])
                self.parameters[self.names[name]] = {
                    path: Literal(_as_tuple(value), name) for path, value in zip(constructors, values, strict=True)
                }
                self._find_default(name, constructors)
        for place, expression in self.expressions.items():
            self.expressions[place] = replaced(expression, self.names)
        self._find_attributes(constructors, numbers, used)

    def _find_attributes(
        self, constructors: Mapping[str, ConstructorCall], numbers: Mapping[str, float], used: set[str]
    ) -> None:
        """Find the attributes of PyTorch's modules that name a computed number which the call needs, or several lines
        of the constructor."""
        attributes: dict[ArgumentExpression, str] = {}
        definitions: dict[str, ArgumentExpression | float] = {}
        for name in constructors[min(constructors)].attributes:
            computed = [expressed(one.attributes.get(name), one) for one in constructors.values()]
            first = replaced(replaced(computed[0], numbers), self.names)
            is_usable = all(one == computed[0] for one in computed) and allowed(name) == name and name not in used
            if is_usable and isinstance(first, ArgumentExpression) and first.operands and first.operator != "index":
                definitions[name] = with_attributes(first, attributes)
                attributes.setdefault(first, name)
        needed: dict[str, int] = {}
        for (number, _), expression in self.expressions.items():
            for name in attribute_names(with_attributes(expression, attributes)):
                needed[name] = needed.get(name, 0) + (1 if self.lines[number].line.attribute else 2)
        attributes = {one: name for one, name in attributes.items() if needed.get(name, 0) > 1}
        self.expressions = {place: with_attributes(one, attributes) for place, one in self.expressions.items()}
        left = list(attributes.values())
        while left:
            name = left.pop()
            self.attributes[name] = definitions[name]
            left += attribute_names(definitions[name])
        self.attributes = {name: one for name, one in definitions.items() if name in self.attributes}

    def _is_indexed(self, attribute: str) -> bool:
        """Whether the code reads single elements of a list, so that it has one length."""
        return any(f"self.{attribute}[" in str(line.line.code) for line in self.lines if not line.line.attribute)

    def _find_default(self, name: str, constructors: Mapping[str, ConstructorCall]) -> None:
        if "" in constructors:
            self.defaults[self.names[name]] = Literal(_as_tuple(constructors[""].arguments[name]), name)
            return
        constructor = next(iter(constructors.values()))
        default = constructor.defaults.get(name)
        if isinstance(default, (int, float, tuple, list)):
            self.defaults[self.names[name]] = Literal(_as_tuple(default), name)

    def _never_stated(self, constructors: Mapping[str, ConstructorCall]) -> dict[str, float]:
        """The arguments that have PyTorch's default in every instance, with it; for the model itself, none."""
        first = next(iter(constructors.values()))
        return {} if "" in constructors else {
            name: default for name, default in first.defaults.items() if isinstance(default, (int, float))
            and all(name in constructor.arguments and not is_argument(constructor.arguments[name])
                    and constructor.arguments[name] == default for constructor in constructors.values())
        }  # fmt: skip

    def _find_values(
        self, columns: Mapping[tuple[int, int], Mapping[str, Literal]], facts: Facts, used: set[str]
    ) -> None:
        """Find the other constants that differ."""
        places: dict[str, list[tuple[int, int]]] = {}
        values: dict[str, Mapping[str, Literal]] = {}
        for place, column in columns.items():
            if place not in self.expressions and len({literal(one.value) for one in column.values()}) > 1:
                key = repr([(path, literal(one.value)) for path, one in sorted(column.items())])
                places.setdefault(key, []).append(place)
                values[key] = column
        for key in sorted(places, key=lambda key: -len(values[key])):
            name = self._same_parameter(values[key])
            if name is None:
                name = unused(allowed(_parameter_name(values[key], facts)), {*used, *self.parameters})
                self.parameters[name] = dict(values[key])
            self.expressions |= dict.fromkeys(places[key], ArgumentExpression("argument", name=name))

    def _same_parameter(self, values: Mapping[str, Literal]) -> str | None:
        """An argument that has these values in all of these instances."""
        for name, others in self.parameters.items():
            if all(path in others and literal(others[path].value) == literal(constant.value)
                   for path, constant in values.items()):  # fmt: skip
                return name
        return None


def _repeated(constructor: ConstructorCall, number: int) -> ArgumentExpression | None:
    """The only expression of its arguments that has this value among those that the constructor makes ``range`` of."""
    owners = (constructor, *constructor.configured.values())
    repeats = {expressed(one, constructor) for owner in dict.fromkeys(owners)
               for one in owner.repeats if plain_number(one) == number}  # fmt: skip
    (first, *others) = repeats or (None,)
    return first if isinstance(first, ArgumentExpression) and not others else None


def _parameter_name(values: Mapping[str, Literal], stated: Mapping[str, Mapping[str, Any]]) -> str:
    """The argument of PyTorch's constructor that has these values in every instance, or that of the Keras layer."""
    first = next(iter(values))
    for name in stated.get(first, {}):
        if all(name in stated.get(path, {}) and equal(stated[path][name], constant.value)
               for path, constant in values.items()):  # fmt: skip
            return name
    return values[first].hint or "value"


def _argument(constructor: ConstructorCall | None, name: str, facts: Mapping[str, Any]) -> Any:
    """An argument of a constructor, or an attribute."""
    return _as_tuple(constructor.arguments[name] if constructor and name in constructor.arguments else facts[name])


def _as_tuple(value: Any) -> Any:
    """A list as a tuple, which a default may be."""
    return tuple(value) if isinstance(value, list) else value


_COUNT = re.compile(r"(num|n)_(?!head)|depth")
"""Arguments that may be the length of a list, even where something else is computed from them."""


IMPORTED = ("i", "keras", "kwargs", "layers", "math", "ops", "training")
"""Names that the source uses itself."""

MOST_CHARACTERS = 78
"""Characters of a docstring of one line."""

MOST_BRANCHES = 4
"""Parts of the lines of a class that only some of its instances have."""

MOST_VARIANTS = 8
"""Kinds of instances with other lines, of one class."""


def inputs_of(instances: Sequence[Instance]) -> dict[str, frozenset[str]]:
    """The inputs of the calls of instances of one class, those of all first, and the instances that have each."""
    owners: dict[str, list[str]] = {}
    for instance in instances:
        for name in instance.body.parameters:
            owners.setdefault(name, []).append(instance.path)
    return {name: frozenset(paths) for name, paths in
            sorted(owners.items(), key=lambda item: len(item[1]) < len(instances))}  # fmt: skip


def _can_share_a_call(instances: Sequence[Instance]) -> bool:
    """Whether their methods have the same parameters, but for inputs of the call that some do not have."""
    methods = {repr({name: one for name, one in instance.signatures.items() if name != CALL}) for instance in instances}
    first = next(iter(inputs_of(instances).values()), None)
    # An input that is None is not the name of something else.
    is_free = all(not {*inputs_of(instances)}.difference(one.body.parameters).intersection(
        name for statement in one.body.statements for name in statement.names) for one in instances)  # fmt: skip
    is_same = len({instance.body.parameters for instance in instances}) == 1
    return len(methods) == 1 and (is_same or (is_free and first == frozenset(one.path for one in instances)))


def merged(instances: Sequence[Instance], facts: Facts) -> Class | None:
    """One class for instances whose lines differ where a switch explains it; ``None`` if there is none."""
    variants: dict[str, list[Instance]] = {}
    for instance in instances:
        variants.setdefault(instance.skeleton, []).append(instance)
    if not _can_share_a_call(instances) or len(variants) > MOST_VARIANTS:
        return None
    lines: list[ClassLine] = []
    for group in variants.values():
        lines = with_variant(lines, group)
    class_ = Class("", list(instances), lines)
    every, branches, previous = class_.paths, 0, class_.paths
    for line in lines:
        paths = frozenset(line.constants)
        # What is set in other modules is not optional.
        if paths != every and (line.line.method or "." in line.line.attribute):
            return None
        branches += paths not in (every, previous) and not line.line.attribute
        previous = paths
    if branches > MOST_BRANCHES:
        return None
    for paths, makes in dict.fromkeys((frozenset(line.constants), bool(line.line.attribute)) for line in lines):
        is_decided = any(one.paths in (paths, every - paths) for one in class_.switches)
        if paths != every and not is_decided and (makes or not class_.deciding_input(paths)):
            switch = _switch(class_, paths, facts)
            if switch is None:
                return None
            class_.switches.append(switch)
    return class_


def _switch(class_: Class, paths: frozenset[str], facts: Facts) -> Switch | None:
    """What tells these instances from the others."""
    others = class_.paths - paths
    for chosen in (paths, others):
        if (attribute := _optional_attribute(class_, chosen)) is not None:
            return Switch(chosen, attribute)
    shared = [name for name in facts.get(min(paths), {}) if all(name in facts.get(path, {}) for path in class_.paths)]
    shared.sort(key=lambda name: [isinstance(facts[min(paths)][name], kind) for kind in (bool, str)], reverse=True)
    for name in shared:
        for chosen, rest in ((paths, others), (others, paths)):
            values = [facts[path][name] for path in chosen]
            # What code branches on: flags, names, zero and one, and whether all of several numbers are zero.
            if _is_zeros(values[0]) and all(isinstance(facts[path][name], (list, tuple)) for path in rest):
                if all(map(_is_zeros, values)) and all(any(facts[path][name]) for path in rest):
                    return Switch(chosen, name, tuple(map(plain_number, values[0])))
            elif not isinstance(values[0], (bool, str)) and values[0] not in (0, 1):
                continue
            elif all(value == values[0] for value in values) and all(facts[path][name] != values[0] for path in rest):
                return Switch(chosen, name, plain_number(values[0]))
    return None


def _is_zeros(value: Any) -> bool:
    is_numbers = isinstance(value, (list, tuple)) and all(isinstance(number, (int, float)) for number in value)
    return is_numbers and len(value) > 0 and not any(value)


def _optional_attribute(class_: Class, paths: frozenset[str]) -> str | None:
    """The attribute that just these instances have."""
    owners: dict[str, frozenset[str]] = {}
    for line in class_.lines:
        if line.line.attribute:
            owners[line.line.attribute] = owners.get(line.line.attribute, frozenset()) | frozenset(line.constants)
    names = [name for name, instances in owners.items() if instances == paths]
    return min(names, key=lambda name: name.endswith("_pad")) if names else None


def with_variant(lines: Sequence[ClassLine], group: Sequence[Instance]) -> list[ClassLine]:
    """The lines with those of instances of one more variant."""
    result: list[ClassLine] = []
    for of_constructor in (True, False):
        before = [line for line in lines if bool(line.line.attribute) == of_constructor]
        places = [place for place, line in enumerate(group[0].lines) if bool(line.attribute) == of_constructor]
        keys = [repr(line.line.key) for line in before], [repr(group[0].lines[place].key) for place in places]
        for kind, begin, end, other_begin, other_end in SequenceMatcher(None, *keys, False).get_opcodes():
            others = [ClassLine(group[0].lines[place], _constants(group, place))
                      for place in places[other_begin:other_end]]  # fmt: skip
            if kind == "equal":
                result += [ClassLine(line.line, {**line.constants, **other.constants})
                           for line, other in zip(before[begin:end], others, strict=True)]  # fmt: skip
            else:
                result += [*before[begin:end], *others]
    return result


def _constants(group: Sequence[Instance], place: int) -> dict[str, list[Literal]]:
    return {instance.path: [part for part in instance.lines[place].code.parts if isinstance(part, Literal)]
            for instance in group}  # fmt: skip
