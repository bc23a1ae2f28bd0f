"""Group the instances of a model into classes: of one class of PyTorch, with equal statements up to constants.

Constants that differ between instances become arguments of the constructor, with the names that PyTorch's have.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any

from wdport.mapping.kinds.kind import KerasCall
from wdport.porting.lowering.keras_graph import KerasStep, word_of
from wdport.porting.outline.counterparts import defaults
from wdport.porting.settings import equal
from wdport.porting.source.body import Body, BodyWriter, NotWrittenError, fold_loops
from wdport.porting.source.code import Code, Literal, call, constant, listed, literal, text
from wdport.porting.source.names import allowed
from wdport.porting.source.scopes import Scope, Scopes

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
    """A line of a class: of the constructor, if it makes an attribute, or of the call."""

    code: Code
    attribute: str = ""

    @property
    def key(self) -> object:
        """What is equal in instances of one class: everything but constants."""
        parts = tuple(part if isinstance(part, str) else None for part in self.code.parts)
        return self.attribute, parts


@dataclass
class Instance:
    """A module of the model that is an instance of a class of the port.

    Attributes:
        path: its path in the PyTorch model.
        scope: its first call.
        parts: the paths of its own layers, variables and inner instances, with their attributes.
        body: its call.
        layers: the constructors of its attributes that are single layers.
        lines: the lines of the constructor, then those of the call.
    """

    path: str
    scope: Scope
    parts: dict[str, Attribute] = field(default_factory=dict)
    body: Body = field(default_factory=lambda: Body(()))
    layers: dict[str, KerasCall] = field(default_factory=dict)
    lines: list[SourceLine] = field(default_factory=list)
    class_: Class | None = None

    @property
    def type(self) -> str:
        module = self.scope.node.module
        assert module is not None
        return module.type

    @property
    def skeleton(self) -> str:
        """What instances of one class have in common."""
        return repr((self.body.parameters, [line.key for line in self.lines]))


@dataclass
class ClassLine:
    """A line of a class, and the constants that each of its instances has in it; an instance without it has none."""

    line: SourceLine
    constants: dict[str, list[Literal]]


@dataclass
class Class:
    """A class of the port.

    Attributes:
        name: its name.
        instances: its instances.
        lines: its lines, those of the constructor first.
        flags: the paths of the instances that have an optional attribute, by the attribute.
        parameters: the arguments of the constructor, by name, each with the values of instances by path.
        places: the argument that stands for a constant, by the line and the constant's number in it.
    """

    name: str
    instances: list[Instance]
    lines: list[ClassLine] = field(default_factory=list)
    flags: dict[str, frozenset[str]] = field(default_factory=dict)
    parameters: dict[str, dict[str, Literal]] = field(default_factory=dict)
    places: dict[tuple[int, int], str] = field(default_factory=dict)

    @property
    def body(self) -> Body:
        return self.instances[0].body

    @property
    def type(self) -> str:
        return self.instances[0].type

    @property
    def paths(self) -> frozenset[str]:
        return frozenset(instance.path for instance in self.instances)

    def arguments(self, instance: Instance) -> list[tuple[str, Literal]]:
        """The arguments that make an instance."""
        flags = [(name, Literal(True, name)) for name, paths in self.flags.items() if instance.path in paths]
        return [(name, values[instance.path]) for name, values in self.parameters.items()
                if instance.path in values] + flags  # fmt: skip

    def find_parameters(self, stated: Mapping[str, Mapping[str, Any]]) -> None:
        """Name the constants that differ; ``stated`` are the arguments of PyTorch's constructors by path."""
        columns: dict[str, list[tuple[int, int]]] = {}
        values: dict[str, dict[str, Literal]] = {}
        for number, line in enumerate(self.lines):
            for place in range(len(next(iter(line.constants.values()), []))):
                column = {path: constants[place] for path, constants in line.constants.items()}
                if len({literal(constant.value) for constant in column.values()}) > 1:
                    key = repr([(path, literal(constant.value)) for path, constant in sorted(column.items())])
                    columns.setdefault(key, []).append((number, place))
                    values[key] = column
        used = {*self.body.parameters, "name", "dtype", *(line.line.attribute for line in self.lines)}
        for key, places in sorted(columns.items(), key=lambda column: -len(values[column[0]])):
            same = self._same_parameter(values[key])
            if same is not None:
                self.places |= dict.fromkeys(places, same)
                continue
            name, count = allowed(_parameter_name(values[key], stated)), 1
            candidate = name
            while candidate in self.parameters or candidate in used:
                count += 1
                candidate = f"{name}_{count}"
            self.parameters[candidate] = values[key]
            self.places |= dict.fromkeys(places, candidate)

    def _same_parameter(self, values: Mapping[str, Literal]) -> str | None:
        """An argument that has these values in all of these instances."""
        for name, others in self.parameters.items():
            if all(path in others and literal(others[path].value) == literal(constant.value)
                   for path, constant in values.items()):  # fmt: skip
                return name
        return None


def _parameter_name(values: Mapping[str, Literal], stated: Mapping[str, Mapping[str, Any]]) -> str:
    """The argument of PyTorch's constructor that has these values in every instance, or that of the Keras layer."""
    first = next(iter(values))
    for name in stated.get(first, {}):
        if all(name in stated.get(path, {}) and equal(stated[path][name], constant.value)
               for path, constant in values.items()):  # fmt: skip
            return name
    return values[first].hint or "value"


MOST_BRANCHES = 4
"""Parts of the lines of a class that only some of its instances have."""


def merged(name: str, instances: Sequence[Instance]) -> Class | None:
    """One class for instances whose lines differ where an optional attribute explains it; ``None`` if there is none."""
    variants: dict[str, list[Instance]] = {}
    for instance in instances:
        variants.setdefault(instance.skeleton, []).append(instance)
    if len({instance.body.parameters for instance in instances}) > 1 or len(variants) > 4:
        return None
    lines: list[ClassLine] = []
    for group in variants.values():
        lines = _with_variant(lines, group)
    class_ = Class(name, list(instances), lines)
    every, branches, previous = class_.paths, 0, class_.paths
    for line in lines:
        paths = frozenset(line.constants)
        if paths not in (every, previous) and condition(class_, paths) is None:
            return None
        branches += paths not in (every, previous) and not line.line.attribute
        previous = paths
    if branches > MOST_BRANCHES:
        return None
    for paths in dict.fromkeys(frozenset(line.constants) for line in lines if line.line.attribute):
        attribute = optional_attribute(class_, paths)
        if paths != every and attribute is not None:
            class_.flags[attribute] = paths
    return class_


def optional_attribute(class_: Class, paths: frozenset[str]) -> str | None:
    """The attribute that just these instances have."""
    owners: dict[str, frozenset[str]] = {}
    for line in class_.lines:
        if line.line.attribute:
            owners[line.line.attribute] = owners.get(line.line.attribute, frozenset()) | frozenset(line.constants)
    names = [name for name, instances in owners.items() if instances == paths]
    return min(names, key=lambda name: name.endswith("_pad")) if names else None


def condition(class_: Class, paths: frozenset[str]) -> str | None:
    """The condition under which an instance is one of these."""
    if (name := optional_attribute(class_, paths)) is not None:
        return f"self.{name} is not None"
    if (name := optional_attribute(class_, class_.paths - paths)) is not None:
        return f"self.{name} is None"
    return None


def _with_variant(lines: Sequence[ClassLine], group: Sequence[Instance]) -> list[ClassLine]:
    """The lines with those of instances of one more variant."""
    others = group[0].lines
    matcher = SequenceMatcher(None, [repr(line.line.key) for line in lines], [repr(line.key) for line in others], False)
    result: list[ClassLine] = []
    for kind, begin, end, other_begin, other_end in matcher.get_opcodes():
        if kind == "equal":
            for line, place in zip(lines[begin:end], range(other_begin, other_end), strict=True):
                result.append(ClassLine(line.line, {**line.constants, **_constants(group, place)}))
        else:
            result += lines[begin:end]
            result += [ClassLine(others[place], _constants(group, place)) for place in range(other_begin, other_end)]
    return result


def _constants(group: Sequence[Instance], place: int) -> dict[str, list[Literal]]:
    return {instance.path: [part for part in instance.lines[place].code.parts if isinstance(part, Literal)]
            for instance in group}  # fmt: skip


class Instances:
    """The instances of a lowered graph, by path."""

    def __init__(self, scopes: Scopes, reserved: frozenset[str], stated: Mapping[str, Mapping[str, Any]]) -> None:
        self.scopes, self.reserved, self.stated = scopes, reserved, stated
        self.by_path: dict[str, Instance] = {}
        for scope in sorted(scopes.root.walk(), key=lambda scope: scope.node.serial):
            self.by_path.setdefault(scope.path, Instance(scope.path, scope))
        self.lowered = scopes.lowered
        self._place()
        self.trained = self._trained()
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
                class_.find_parameters(self.stated)
                for instance in class_.instances:
                    instance.class_ = class_
                classes.append(class_)
        return classes

    def _grouped(self, instances: Sequence[Instance]) -> list[Class]:
        if (one := merged("", instances)) is not None:
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
        instance.body = self._body(instance.scope, instance)
        for scope in self.scopes.root.walk():
            if scope.path == instance.path and scope is not instance.scope:
                other = self._body(scope, instance)
                if _texts(other) != _texts(instance.body):
                    raise NotWrittenError(f"{instance.path} is called in two ways")
                instance.body.helpers |= other.helpers
        layers = {layer.torch: layer.call for layer in self.lowered.layers.values()}
        instance.layers = {attribute.name: layers[path] for path, attribute in instance.parts.items()
                           if attribute.index is None and path in layers}  # fmt: skip

    def _show_alike(self, instances: Sequence[Instance]) -> None:
        """Let the layers of one attribute state the same arguments in all instances."""
        for name in dict.fromkeys(name for instance in instances for name in instance.layers):
            calls = {instance.path: instance.layers[name] for instance in instances if name in instance.layers}
            if len({call.name for call in calls.values()}) > 1:
                continue
            declared = defaults(next(iter(calls.values())).name)
            stated_keys = {key for call in calls.values() for key in _shown(call, declared)}
            for instance in instances:
                if name in instance.layers:
                    call = instance.layers[name]
                    stated = {
                        key: call.arguments.get(key, declared.get(key)) for key in (*call.arguments, *stated_keys)
                    }
                    instance.layers[name] = KerasCall(call.name, stated, dict.fromkeys(stated_keys, "stated"))

    def _write(self, instance: Instance) -> None:
        """The lines of an instance."""
        order = list(instance.parts)
        attributes: dict[str, list[tuple[Attribute, Code]]] = {}
        for path in sorted(order, key=lambda path: (self._first_use(instance, path), order.index(path))):
            attribute = instance.parts[path]
            attributes.setdefault(attribute.name, []).append((attribute, self._constructor(path, instance)))
        for name, elements in attributes.items():
            instance.lines.append(SourceLine(Code((f"self.{name} = ", *_made_by(elements).parts)), name))
        lengths = {f"self.{name}": len(elements) for name, elements in attributes.items()
                   if elements[0][0].index is not None}  # fmt: skip
        instance.lines += body_lines(instance.body, lengths)

    def _body(self, scope: Scope, instance: Instance) -> Body:
        return BodyWriter(self.scopes, scope, self._names_of(instance), self.trained).write()

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

    def _constructor(self, path: str, instance: Instance) -> Code:
        layers = [layer for layer in self.lowered.layers.values() if layer.torch == path]
        if layers:
            return layer_code(instance.layers.get(instance.parts[path].name, layers[-1].call))
        if path in self.by_path:
            class_ = self.by_path[path].class_
            assert class_ is not None
            return call(
                class_.name, [], [(name, Code((value,))) for name, value in class_.arguments(self.by_path[path])]
            )
        held = self.scopes.graph.tensors[path]
        more = [] if held.kind == "parameter" else [("trainable", text("False"))]
        name = self.owner_of(path).parts[path].name
        initializer = "zeros" if name.endswith("bias") else "ones" if len(held.shape) < 2 else "glorot_uniform"
        shape = constant(tuple(map(int, held.shape)), "shape")
        return call("self.add_weight", [], [("shape", shape), ("initializer", text(f'"{initializer}"')),
                                            ("name", text(f'"{name}"')), *more])  # fmt: skip


def _texts(body: Body) -> list[str]:
    return [body.parameters.__repr__(), *("".join(map(str, statement.parts)) for statement in body.statements)]


_SPATIAL = ("kernel_size", "strides", "dilation_rate", "pool_size", "padding", "size", "cropping")


def _shown(layer: KerasCall, declared: Mapping[str, object]) -> list[str]:
    """The arguments of a layer that do not have Keras's defaults."""
    return [key for key, default in declared.items()
            if key in layer.arguments and (default is _EMPTY or not equal(layer.arguments[key], default))]  # fmt: skip


def layer_code(layer: KerasCall) -> Code:
    """The constructor of a layer, without arguments that have Keras's defaults."""
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
    return call(layer.name, args, kwargs)


def _made_by(elements: Sequence[tuple[Attribute, Code]]) -> Code:
    """The value of an attribute: one constructor, or a list."""
    if elements[0][0].index is None:
        return elements[0][1]
    codes = [code for _, code in sorted(elements, key=lambda element: element[0].index or 0)]
    if len(codes) > 1 and len({str(code) for code in codes}) == 1:
        return Code(("[", *codes[0].parts, " for _ in range(", Literal(len(codes), "depth"), ")]"))
    return listed(codes, "[]")


def body_lines(body: Body, lengths: Mapping[str, int]) -> list[SourceLine]:
    """The lines of a call, with loops over lists of these lengths."""
    lines: list[SourceLine] = []
    for one in fold_loops(body.statements, body.elements):
        if not isinstance(one, tuple):
            lines.append(SourceLine(Code(one.parts)))
            continue
        _, lists, times, inner = one
        names = list(lists.values())
        spans = [name if lengths.get(name) == times else f"{name}[:{times}]" for name in lists]
        over = spans[0] if len(spans) == 1 else f"zip({', '.join(spans)})"
        parts: list[Any] = [f"for {', '.join(names)} in {over}:"]
        for statement in inner:
            parts += ["\n    ", *statement.parts]
        lines.append(SourceLine(Code(tuple(parts))))
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
