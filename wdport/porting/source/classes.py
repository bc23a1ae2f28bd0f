"""Group the instances of a model into classes: of one class of PyTorch, with equal statements up to constants.

Constants that differ between instances become arguments of the constructor, with the names that PyTorch's have.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import takewhile
from typing import Any

from wdport.mapping.kinds.kind import KerasCall
from wdport.porting.arguments import (
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
from wdport.porting.construction import stated_arguments
from wdport.porting.lowering.keras_graph import Hole, KerasStep, Start, unused, word_of
from wdport.porting.outline.counterparts import defaults
from wdport.porting.settings import equal
from wdport.porting.source.body import Body, BodyWriter, Loop, fold_loops
from wdport.porting.source.code import Code, Literal, call, constant, listed, literal, text
from wdport.porting.source.names import allowed
from wdport.porting.source.scopes import Scope, Scopes
from wdport.porting.source.ways import CALL, Way, ways_of

_EMPTY = inspect.Parameter.empty


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
    ``value``, an argument that has this value in just them."""

    paths: frozenset[str]
    name: str
    value: Any = None

    def text(self, holds: bool, prefix: str, name: str) -> str:
        """The condition, or its opposite, with the argument's name in the source."""
        if self.value is None and prefix:
            return f"{prefix}{self.name} is {'not ' if holds else ''}None"
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
    def paths(self) -> frozenset[str]:
        return frozenset(instance.path for instance in self.instances)

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

    def condition(self, paths: frozenset[str], prefix: str = "self.") -> str:
        """The condition under which an instance is one of these."""
        switch = next(one for one in self.switches if one.paths in (paths, self.paths - paths))
        return switch.text(switch.paths == paths, prefix, self.names.get(switch.name, switch.name))

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
            *(name for parameters in self.instances[0].signatures.values() for name in parameters),
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
                    path: Literal(value, name) for path, value in zip(constructors, values, strict=True)
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
            self.defaults[self.names[name]] = Literal(constructors[""].arguments[name], name)
            return
        constructor = next(iter(constructors.values()))
        default = constructor.defaults.get(name)
        if isinstance(default, (int, float, tuple)):
            self.defaults[self.names[name]] = Literal(default, name)

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
    return constructor.arguments[name] if constructor and name in constructor.arguments else facts[name]


_COUNT = re.compile(r"(num|n)_(?!head)|depth")
"""Arguments that may be the length of a list, even where something else is computed from them."""


IMPORTED = ("keras", "layers", "math", "ops", "training")
"""Names that the source uses itself."""

MOST_BRANCHES = 4
"""Parts of the lines of a class that only some of its instances have."""


def merged(instances: Sequence[Instance], facts: Facts) -> Class | None:
    """One class for instances whose lines differ where a switch explains it; ``None`` if there is none."""
    variants: dict[str, list[Instance]] = {}
    for instance in instances:
        variants.setdefault(instance.skeleton, []).append(instance)
    if len({repr(instance.signatures) for instance in instances}) > 1 or len(variants) > 4:
        return None
    lines: list[ClassLine] = []
    for group in variants.values():
        lines = _with_variant(lines, group)
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
    for paths in dict.fromkeys(frozenset(line.constants) for line in lines):
        if paths != every and not any(one.paths in (paths, every - paths) for one in class_.switches):
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
    shared.sort(key=lambda name: not isinstance(facts[min(paths)][name], bool))
    for name in shared:
        for chosen, rest in ((paths, others), (others, paths)):
            values = [facts[path][name] for path in chosen]
            # What code branches on: flags, names, zero and one.
            if not isinstance(values[0], (bool, str)) and values[0] not in (0, 1):
                continue
            if all(value == values[0] for value in values) and all(facts[path][name] != values[0] for path in rest):
                return Switch(chosen, name, plain_number(values[0]))
    return None


def _optional_attribute(class_: Class, paths: frozenset[str]) -> str | None:
    """The attribute that just these instances have."""
    owners: dict[str, frozenset[str]] = {}
    for line in class_.lines:
        if line.line.attribute:
            owners[line.line.attribute] = owners.get(line.line.attribute, frozenset()) | frozenset(line.constants)
    names = [name for name, instances in owners.items() if instances == paths]
    return min(names, key=lambda name: name.endswith("_pad")) if names else None


def _with_variant(lines: Sequence[ClassLine], group: Sequence[Instance]) -> list[ClassLine]:
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


class Instances:
    """The instances of a lowered graph, by path. ``share`` gives modules that several instances hold to these, and
    returns their names, see :mod:`wdport.porting.source.shared`."""

    def __init__(
        self, scopes: Scopes, reserved: frozenset[str], constructors: Mapping[str, ConstructorCall],
        starts: Mapping[str, Start], share: Callable[[Instances], Mapping[tuple[str, str], str]],
    ) -> None:  # fmt: skip
        self.scopes, self.reserved, self.constructors, self.starts = scopes, reserved, constructors, starts
        modules = scopes.graph.modules
        self.facts = {path: {**module.flags, **dict(stated_arguments(constructors.get(path, ConstructorCall())))}
                      for path, module in modules.items()}  # fmt: skip
        self.by_path: dict[str, Instance] = {}
        for scope in sorted(scopes.root.walk(), key=lambda scope: scope.node.serial):
            self.by_path.setdefault(scope.path, Instance(scope.path, scope))
        self.lowered = scopes.lowered
        self._place()
        self.shared = share(self)
        self.trained = self._trained()
        self.ways: dict[int, Way] = {}
        self.classes = self._classes()

    def owner(self, path: str) -> Instance:
        """The innermost instance that a layer, a variable or an instance is in."""
        parent = path
        while parent:
            parent = parent.rpartition(".")[0]
            if parent in self.by_path:
                return self.by_path[parent]
        return self.by_path[""]

    def _place(self) -> None:
        """Give every layer, variable and inner instance an attribute of its owner."""
        named: dict[str, list[str]] = {}
        layers = {layer.torch: layer for layer in self.lowered.layers.values()}
        paths = [*self.lowered.variables, *layers, *(path for path in self.by_path if path)]
        for path in dict.fromkeys(paths):
            owner = self.owner(path)
            if path in layers and path in self.by_path and path:
                owner = self.by_path[path]  # a module whose only step is a layer
            named.setdefault(owner.path, []).append(path)
        for owner_path, inner in named.items():
            owner = self.by_path[owner_path]
            prefix = f"{owner_path}." if owner_path else ""
            relative = {path: path.removeprefix(prefix) if path != owner_path else self._own(path) for path in inner}
            if owner.scope.is_sequential:
                # The names of the layers.
                owner.parts |= {path: Attribute(name.replace(".", "_")) for path, name in relative.items()}
            else:
                self._attributes(owner, relative)

    def _own(self, path: str) -> str:
        """The attribute for a layer that a module itself is."""
        layer = next(layer for layer in self.lowered.layers.values() if layer.torch == path)
        return word_of(layer.call)

    def _attributes(self, owner: Instance, relative: Mapping[str, str]) -> None:
        lists: dict[str, list[tuple[int, str]]] = {}
        used: set[str] = set()
        for path, name in relative.items():
            head, _, rest = name.rpartition(".")
            if rest.isdigit():
                lists.setdefault(head.replace(".", "_") or "layers", []).append((int(rest), path))
                continue
            flat = allowed(name.replace(".", "_"), self.reserved)
            while flat in used:
                flat = f"{flat}_"
            used.add(flat)
            owner.parts[path] = Attribute(flat)
        for head, elements in lists.items():
            name = allowed(head, self.reserved)
            while name in used:
                name = f"{name}_"
            used.add(name)
            for position, (_, path) in enumerate(sorted(elements)):
                owner.parts[path] = Attribute(name, position)

    def attribute(self, scope_path: str, path: str) -> Attribute:
        return self.owner_of(path).parts[path]

    def owner_of(self, path: str) -> Instance:
        return next(instance for instance in self.by_path.values() if path in instance.parts)

    def expression(self, viewer: str, path: str) -> str | None:
        """How a module's code names a layer, a variable or an instance; ``None`` if it is not inside the module."""
        chain: list[str] = []
        current = path
        while True:
            if (name := self.shared.get((viewer, current))) is not None:
                return ".".join(["self", name, *reversed(chain)])
            owner = self.owner_of(current)
            chain.append(owner.parts[current].expression)
            if owner.path == viewer:
                return ".".join(["self", *reversed(chain)])
            if not owner.path or owner.path == current:
                return None
            current = owner.path

    def keras_path(self, path: str) -> str:
        """The path of a layer, a variable or an instance in the Keras model."""
        pieces: list[str] = []
        current = path
        while True:
            owner = self.owner_of(current)
            pieces.append(owner.parts[current].path)
            if not owner.path:
                return "/".join(reversed(pieces))
            current = owner.path

    def _trained(self) -> set[str]:
        """The layers and instances that are told whether the model is trained: if one in a list is, all are."""
        trained = set(self.scopes.trained)
        keys = {layer.torch: layer.name for layer in self.lowered.layers.values()}
        for instance in self.by_path.values():
            lists: dict[str, list[str]] = {}
            for path, attribute in instance.parts.items():
                if attribute.index is not None:
                    lists.setdefault(attribute.name, []).append(keys.get(path, path))
            for names in lists.values():
                if trained & set(names):
                    trained |= set(names)
        return trained

    def _names_of(self, instance: Instance) -> dict[str, str]:
        """The expressions of layers by name, of variables and of instances by path, as the instance's code has them."""
        names: dict[str, str] = {}
        for name, layer in self.lowered.layers.items():
            if (expression := self.expression(instance.path, layer.torch)) is not None:
                names[name] = expression
        for path in (*self.lowered.variables, *(path for path in self.by_path if path)):
            if (expression := self.expression(instance.path, path)) is not None:
                names[path] = expression
        for alias in self.lowered.aliases.values():
            if (expression := self.expression(instance.path, alias.torch)) is not None:
                names[alias.path] = f"{expression}.{alias.variable}"
        return names

    def _classes(self) -> list[Class]:
        """The classes, those of inner instances first."""
        heights = self._heights()
        by_type: dict[str, list[Instance]] = {}
        for instance in self.by_path.values():
            if instance.scope.is_sequential:
                continue
            by_type.setdefault(instance.type, []).append(instance)
        groups: list[tuple[int, list[Instance]]] = []
        for instances in by_type.values():
            # Instances inside instances of the same class are classes of their own.
            levels = [heights[instance.path] for instance in instances]
            if self._is_nested(instances):
                groups += [(level, [one for one in instances if heights[one.path] == level]) for level in set(levels)]
            else:
                groups.append((max(levels), instances))
        classes: list[Class] = []
        names: dict[str, int] = {}
        for _, instances in sorted(groups, key=lambda group: group[0]):
            for instance in instances:
                self._fill(instance)
            self._show_alike(instances)
            for instance in instances:
                self._write(instance)
            for class_ in self._grouped(instances):
                word = allowed(class_.type.rpartition(".")[2])
                names[word] = names.get(word, 0) + 1
                class_.name = word if names[word] == 1 else f"{word}{names[word]}"
                class_.find_parameters(self.constructors, self.facts, self.reserved)
                for instance in class_.instances:
                    instance.class_ = class_
                classes.append(class_)
        return classes

    def _grouped(self, instances: Sequence[Instance]) -> list[Class]:
        if (one := merged(instances, self.facts)) is not None:
            return [one]
        groups: dict[str, list[Instance]] = {}
        for instance in instances:
            groups.setdefault(instance.skeleton, []).append(instance)
        return [Class("", group, _with_variant([], group)) for group in groups.values()]

    def _heights(self) -> dict[str, int]:
        heights: dict[str, int] = {}
        for scope in self.scopes.root.walk():
            inner = [heights[item.path] for item in scope.items if isinstance(item, Scope)]
            parts = [heights.get(path, -1) for path in self.by_path[scope.path].parts if path in self.by_path]
            heights[scope.path] = max([heights.get(scope.path, 0), *(height + 1 for height in (*inner, *parts))])
        return heights

    def _is_nested(self, instances: Sequence[Instance]) -> bool:
        paths = [instance.path for instance in instances]
        return any(b != a and (not a or b.startswith(f"{a}.")) for a in paths for b in paths)

    def _fill(self, instance: Instance) -> None:
        """Write the body of an instance whose inner instances have classes."""
        scopes = [scope for scope in self.scopes.root.walk() if scope.path == instance.path]
        methods: dict[str, Hole] = {}
        bodies = [(scope, self._body(scope, instance, methods))
                  for scope in sorted(scopes, key=lambda scope: scope.node.serial)]  # fmt: skip
        instance.bodies, ways = ways_of(bodies)
        self.ways |= ways
        layers = {layer.torch: layer.call for layer in self.lowered.layers.values()}
        instance.layers = {path: layers[path] for path in self._inner_parts(instance) if path in layers}

    def _inner_parts(self, instance: Instance) -> Iterator[str]:
        """The paths of an instance's parts, and of those of its sequential ones."""
        for path in instance.parts:
            yield path
            if path != instance.path and path in self.by_path and self.by_path[path].scope.is_sequential:
                yield from self._inner_parts(self.by_path[path])

    def _show_alike(self, instances: Sequence[Instance]) -> None:
        """Let the layers of one attribute state the same arguments in all instances."""
        groups: dict[tuple[str, str], list[tuple[Instance, str]]] = {}
        for instance in instances:
            for path, layer in instance.layers.items():
                groups.setdefault((path.removeprefix(instance.path), layer.name), []).append((instance, path))
        for group in groups.values():
            calls = [instance.layers[path] for instance, path in group]
            declared = defaults(calls[0].name)
            stated_keys = {key for call in calls for key in _shown(call, declared)}
            for (instance, path), one in zip(group, calls, strict=True):
                stated = {key: one.arguments.get(key, declared.get(key)) for key in (*one.arguments, *stated_keys)}
                instance.layers[path] = KerasCall(one.name, stated, dict.fromkeys(stated_keys, "stated"))

    def _write(self, instance: Instance) -> None:
        """The lines of an instance."""
        order = list(instance.parts)
        attributes: dict[str, list[tuple[Attribute, Code]]] = {}
        shared_paths = {path for _, path in self.shared}

        def place(path: str) -> tuple[bool, int, int]:
            # What others hold comes first, so that Keras names it after this attribute.
            return path not in shared_paths, self._first_use(instance, path), order.index(path)

        for path in sorted(order, key=place):
            attribute = instance.parts[path]
            attributes.setdefault(attribute.name, []).append((attribute, self._constructor(path, instance)))
        for name, elements in attributes.items():
            instance.lines.append(SourceLine(Code((f"self.{name} = ", *_made_by(elements).parts)), name))
        for (holder, path), name in self.shared.items():
            if path in instance.parts:
                target = f"{self.expression(instance.path, holder)}.{name}"
                instance.lines.append(SourceLine(text(f"{target} = {self.expression(instance.path, path)}"), target))
        lengths = {f"self.{name}": len(elements) for name, elements in attributes.items()
                   if elements[0][0].index is not None}  # fmt: skip
        # So that instances of one class leave the same steps to their methods.
        instance.lines += [
            SourceLine(text(repr(hole.key)), method=name) for name, hole in instance.body.methods.items()
        ]
        for name, body in instance.bodies.items():
            instance.lines += body_lines(body, lengths, "" if name == CALL else name)

    def _body(self, scope: Scope, instance: Instance, methods: dict[str, Hole]) -> Body:
        names = self._names_of(instance)
        return BodyWriter(self.scopes, scope, names, self.trained, self.reserved, self.ways, methods).write()

    def _first_use(self, instance: Instance, path: str) -> int:
        """Where the first step is that uses a part, so that the constructor has its parts in the order of the call."""
        attribute = instance.parts[path]
        same = {other for other, one in instance.parts.items() if one.name == attribute.name}
        layers = {layer.name for layer in self.lowered.layers.values() if layer.torch in same}
        for position, item in enumerate(instance.scope.items):
            if isinstance(item, Scope) and item.path in same:
                return position
            if isinstance(item, KerasStep) and item.layer in layers:
                return position
        return -1

    def _constructor(self, path: str, instance: Instance, name: str = "") -> Code:
        """What makes a part; elements of a ``keras.Sequential`` have names."""
        layers = [layer for layer in self.lowered.layers.values() if layer.torch == path]
        named = [("name", text(f'"{name}"'))] if name else []
        if layers:
            return layer_code(instance.layers.get(path, layers[-1].call), named)
        if path in self.by_path and self.by_path[path].scope.is_sequential:
            inner = self.by_path[path]
            codes = [self._constructor(element, instance, inner.parts[element].name)
                     for element in map(self.scopes.path, inner.scope.items)]  # fmt: skip
            return call("keras.Sequential", [listed(codes, "[]")], named)
        if path in self.by_path:
            class_ = self.by_path[path].class_
            assert class_ is not None
            stated = [(name, constant(value.value, name)) for name, value in class_.arguments(self.by_path[path])]
            outer = self.constructors.get(instance.path, ConstructorCall())
            leading = zip(stated, class_.required, strict=False)
            passed_on = list(takewhile(lambda pair: pair[0][0] == pair[1] and _is_passed_on(*pair[0], outer), leading))
            args, kwargs = [code for (_, code), _ in passed_on], stated[len(passed_on) :]
            return call(class_.name, args, [*kwargs, *named])
        held = self.scopes.graph.tensors[path]
        more = [] if held.trained else [("trainable", text("False"))]
        name = self.owner_of(path).parts[path].name
        starts_empty = name.endswith("bias") or (held.kind == "buffer" and not name.endswith(("var", "std", "scale")))
        usual = "zeros" if starts_empty else "ones" if len(held.shape) < 2 else "glorot_uniform"
        initializer = self._start(path, instance) if path in self.starts else text(f'"{usual}"')
        shape = listed([constant(int(size), "shape" if size > 1 else "") for size in held.shape])
        return call("self.add_weight", [], [("shape", shape), ("initializer", initializer),
                                            ("name", text(f'"{name}"')), *more])  # fmt: skip

    def _start(self, path: str, instance: Instance) -> Code:
        """The initializer of a buffer."""
        start = self.starts[path]
        if start.formula is not None:
            scopes = Scopes(self.scopes.graph, start.formula, {})
            writer = BodyWriter(scopes, scopes.root, {}, ())
            code = writer.expression(start.formula.outputs[0].value)
            instance.body.helpers |= writer.body.helpers
            return Code(("lambda shape, dtype: ", *code.parts))
        if start.constant in (None, 0, 1):
            return text('"ones"' if start.constant else '"zeros"')
        return call("keras.initializers.Constant", [constant(start.constant, "value")])


def _is_passed_on(name: str, code: Code, constructor: ConstructorCall) -> bool:
    """Whether an argument is the argument of the same name of the outer constructor."""
    value = code.parts[0].value if len(code.parts) == 1 and isinstance(code.parts[0], Literal) else None
    return expressed(value, constructor) == ArgumentExpression("argument", name=name)


_SPATIAL = ("kernel_size", "strides", "dilation_rate", "pool_size", "padding", "size", "cropping")


def _shown(layer: KerasCall, declared: Mapping[str, object]) -> list[str]:
    """The arguments of a layer that do not have Keras's defaults."""
    return [key for key, default in declared.items()
            if key in layer.arguments and (default is _EMPTY or not equal(layer.arguments[key], default))]  # fmt: skip


def layer_code(layer: KerasCall, more: Sequence[tuple[str, Code]] = ()) -> Code:
    """The constructor of a layer, without arguments that have Keras's defaults; ``more`` are further arguments."""
    declared = defaults(layer.name)
    stated_keys = [*_shown(layer, declared), *(key for key, mark in layer.origin.items() if mark == "stated")]
    args, kwargs = [], []
    by_name = False
    for position, (key, default) in enumerate(declared.items()):
        if key not in stated_keys:
            by_name = True
            continue
        value = layer.arguments[key]
        code = layer_code(value) if isinstance(value, KerasCall) else constant(_plain(key, value), key)
        if not by_name and (default is _EMPTY or (position == 0 and key not in _BY_NAME)):
            args.append(code)
        else:
            by_name = True
            kwargs.append((key, code))
    kwargs += [(key, constant(value, key)) for key, value in layer.arguments.items() if key not in declared]
    return call(layer.name, args, [*kwargs, *more])


def _made_by(elements: Sequence[tuple[Attribute, Code]]) -> Code:
    """The value of an attribute: one constructor, or a list."""
    if elements[0][0].index is None:
        return elements[0][1]
    codes = [code for _, code in sorted(elements, key=lambda element: element[0].index or 0)]
    if len(codes) > 1 and len({str(code) for code in codes}) == 1:
        return Code(("[", *codes[0].parts, " for _ in range(", Literal(len(codes), "depth"), ")]"))
    return listed(codes, "[]")


def body_lines(body: Body, lengths: Mapping[str, int], method: str = "") -> list[SourceLine]:
    """The lines of a call, with loops over lists of these lengths."""
    lines: list[SourceLine] = []
    for one in fold_loops(body.statements, body.elements):
        if not isinstance(one, Loop):
            lines.append(SourceLine(Code(one.parts), method=method))
            continue
        spans = [name if lengths.get(name) == one.times else f"{name}[:{one.times}]" for name in one.names]
        over, names = spans[0] if len(spans) == 1 else f"zip({', '.join(spans)})", ", ".join(one.names.values())
        if one.index:
            over, names = f"enumerate({over})", f"{one.index}, {f'({names})' if len(spans) > 1 else names}"
        parts: list[Any] = [f"for {names} in {over}:"]
        for statement in one.statements:
            parts += ["\n    ", *statement.parts]
        lines.append(SourceLine(Code(tuple(parts)), method=method))
    return lines


_BY_NAME = ("axis", "epsilon", "max_value", "negative_slope", "alpha", "approximate", "keepdims")


def _plain(key: str, value: Any) -> Any:
    """One number for equal numbers along all axes."""
    if (
        isinstance(value, tuple)
        and key in _SPATIAL
        and value
        and all(isinstance(number, int) and number == value[0] for number in value)
    ):
        return _plain(key, value[0])
    return value
