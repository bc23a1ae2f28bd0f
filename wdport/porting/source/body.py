"""The statements of a module's call."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from wdport.porting.graph import CodePlace, Slice
from wdport.porting.lowering.keras_graph import (
    CHECK,
    MOST_NUMBERS,
    FloatDtype,
    FloatLimit,
    Hole,
    KerasSize,
    KerasStep,
    KerasValue,
    Placed,
    nested,
    unused,
)
from wdport.porting.source.code import ATOM, LEVELS, UNARY, Code, binary, call, constant, listed, text
from wdport.porting.source.loops import ELEMENT, loop_of, repetitions
from wdport.porting.source.names import AssignedNames, allowed, caller_of, target_of
from wdport.porting.source.scopes import Scope, Scopes, values_in, values_read
from wdport.porting.source.statements import Statement


class NotWrittenError(Exception):
    """A step has no source; the message says why."""


@dataclass
class Body:
    """The call of one instance: the names of its parameters, and its statements."""

    parameters: tuple[str, ...]
    statements: list[Statement] = field(default_factory=list)
    helpers: set[str] = field(default_factory=set)
    elements: dict[str, str] = field(default_factory=dict)
    """What the author calls an element of a list of layers in a loop, by the list."""
    methods: dict[str, Hole] = field(default_factory=dict)
    """The methods that stand for steps without a counterpart, by name."""
    is_function: bool = False
    """Whether it is that of a function of the author's that is no method."""

    def method_of(self, hole: Hole) -> str:
        """The method that stands for a step; "" if there is none."""
        return next((name for name, other in self.methods.items() if other.key == hole.key), "")


class BodyWriter:
    """Makes the statements of one scope. ``attributes`` are the expressions of layers, variables and inner modules."""

    def __init__(
        self, scopes: Scopes, scope: Scope, attributes: Mapping[str, str], trained: Collection[str],
        reserved: frozenset[str] = frozenset(), ways: Mapping[int, Any] | None = None,
        methods: dict[str, Hole] | None = None,
    ) -> None:  # fmt: skip
        self._trained, self._ways = trained, ways or {}
        self._reserved = reserved | {name for text in attributes.values() for name in re.findall(r"^self\.(\w+)", text)}
        self.scopes, self.scope, self.attributes = scopes, scope, attributes
        self.names: dict[KerasValue, str] = {}
        self._bound: dict[str, KerasValue] = {}
        self._steps = {item.serial: item for item in scope.items if isinstance(item, KerasStep)}
        self._calls = {value: item for item in scope.items if isinstance(item, Scope) for value in item.results}
        self._uses = self._count()
        self._given: set[KerasValue] = set()
        self._final = self._final_steps()
        self._last: dict[KerasValue, int] = {}
        self._last_sizes: dict[tuple[KerasValue, int], int] = {}
        self.body = Body((), methods=methods if methods is not None else {})

    def write(self) -> Body:
        chosen = self._chosen()
        self._last = self._last_uses(chosen)
        self._bind_parameters()
        for position, item in enumerate(self.scope.items):
            if item_key(item) in chosen:
                self._write(item, position)
        if not self.scope.results:
            raise NotWrittenError(f"{self.scope.path or 'the model'} returns nothing that is used")
        code = self._output(self._returned)
        if isinstance(self._returned, tuple):
            code = Code(code.parts[1:-1])
        self.body.statements.append(Statement((), code, returns=True))
        return self.body

    @property
    def _returned(self) -> Any:
        results = self.scope.results
        return self.scope.returned or (results[0] if len(results) == 1 else tuple(results))

    def _output(self, value: Any) -> Code:
        if isinstance(value, Mapping):
            items = [Code((f"{json.dumps(key)}: ", *self._output(item).parts)) for key, item in value.items()]
            return listed(items, "{}")
        return listed([self._output(item) for item in value]) if isinstance(value, tuple) else self.expression(value)

    def _count(self) -> dict[KerasValue, int]:
        counts: dict[KerasValue, int] = {}
        for item in self.scope.items:
            for value in values_read(item):
                counts[value] = counts.get(value, 0) + 1
        for value in values_in(self._returned):
            counts[value] = counts.get(value, 0) + 1
        return counts

    def _final_steps(self) -> dict[int, int]:
        """The nodes whose output a step is, by the step: those whose value is assigned, such as the last of
        ``y = x.transpose(1, 2).contiguous()``, rather than others."""
        final: dict[int, int] = {}
        nodes = self.scopes.graph.nodes
        for node in nodes:
            if node.module is not None and not node.is_layer:
                continue
            for source in [node.same] if node.same is not None else [tensor.source for tensor in node.outputs]:
                placed = self.scopes.places.get(source)
                if placed is not None and placed.value.kind == "step":
                    first = nodes[final.setdefault(placed.value.step, node.serial)]
                    if first.parent == node.parent and not target_of(first.place).names:
                        final[placed.value.step] = node.serial
        return final

    def _target(self, item: KerasStep | Scope) -> AssignedNames:
        if isinstance(item, Scope):
            return target_of(item.place)
        node = self._final.get(item.serial)
        return target_of(self.scopes.graph.nodes[node].place) if node is not None else AssignedNames()

    def _chosen(self) -> set[object]:
        """The items that become statements: the others are written where they are used."""
        chosen: set[object] = set()
        depths: dict[KerasValue, int] = {}
        sized = {value.tensor for item in self.scope.items if isinstance(item, KerasStep)
                 for value in _sizes(item) if value.tensor is not None}  # fmt: skip
        for item in self.scope.items:
            results = self._results(item)
            uses = sum(self._uses.get(value, 0) for value in results)
            returned = len(self.scope.results) == 1 and results == [self.scope.results[0]] and uses == 1
            named = bool(self._target(item).names) and not returned
            is_named = uses > 1 or len(results) > 1 or any(value in sized for value in results)
            depth = 1 + max((depths.get(value, 0) for value in values_read(item)), default=0)
            is_named |= depth > DEEPEST and not returned and _is_call(item)
            is_named |= self._is_in_chain(item) and not returned
            if (named and uses) or is_named or (isinstance(item, Scope) and not results) or _is_check(item):
                chosen.add(item_key(item))
                depth = 0
            depths.update(dict.fromkeys(results, depth if _is_call(item) else max(depth - 1, 0)))
        return chosen

    def _element(self, item: KerasStep | Scope) -> tuple[str, int] | None:
        """The list and the index of a layer that is called, if it is in a list."""
        if isinstance(item, Scope) and item.function is not None:
            return None
        path = item.path if isinstance(item, Scope) else item.layer
        match = ELEMENT.fullmatch(self.attributes.get(path, "")) if path else None
        return (match.group(1), int(match.group(2))) if match is not None else None

    def _is_in_chain(self, item: KerasStep | Scope) -> bool:
        """Whether only the next element of the same list reads the output of an element."""
        element, results = self._element(item), self._results(item)
        if element is None or len(results) != 1:
            return False
        readers = [other for other in self.scope.items if results[0] in values_read(other)]
        after = self._element(readers[0]) if len(readers) == 1 else None
        before = [
            self._element(other) for other in self.scope.items if set(self._results(other)) & set(values_read(item))
        ]
        return after == (element[0], element[1] + 1) or (element[0], element[1] - 1) in before

    def _results(self, item: KerasStep | Scope) -> list[KerasValue]:
        """The values of an item that are used."""
        if isinstance(item, Scope):
            return list(item.results)
        values = [value for value in self._uses if value.kind == "step" and value.step == item.serial]
        return sorted(values, key=lambda value: -1 if value.index is None else value.index)

    def _last_uses(self, chosen: set[object]) -> dict[KerasValue, int]:
        """The position of the last statement that reads a value, also through expressions inside it."""
        last: dict[KerasValue, int] = {}
        end = len(self.scope.items)

        def read(value: KerasValue, position: int) -> None:
            maker: KerasStep | Scope | None = self._calls.get(value)
            if maker is None and value.kind == "step":
                maker = self._steps.get(value.step)
            last[value] = max(last.get(value, -1), position)
            if maker is not None and item_key(maker) not in chosen:
                read_by(maker, position)

        def read_by(item: KerasStep | Scope, position: int) -> None:
            for inner in self._operands(item):
                read(inner, position)
            for size in _sizes(item) if isinstance(item, KerasStep) else ():
                assert size.tensor is not None
                self._last_sizes[size.tensor, size.axis] = position

        for position, item in enumerate(self.scope.items):
            if item_key(item) in chosen:
                read_by(item, position)
        for value in self.scope.results:
            read(value, end)
        return last

    @staticmethod
    def _operands(item: KerasStep | Scope) -> list[KerasValue]:
        """What an item reads, without tensors whose sizes alone it reads: sizes have names of their own."""
        if isinstance(item, Scope):
            return values_read(item)
        return [one for one in nested((item.args, item.kwargs), sizes=False) if isinstance(one, KerasValue)]

    def _bind_parameters(self) -> None:
        stated = self.scopes.argument_names(self.scope)
        names = []
        # Keras's own masks have this name among the arguments of a call; those of a model are one tuple.
        is_tuple = self.scope.parent is None and len(self.scope.parameters) > 1
        reserved = _RESERVED if is_tuple else _RESERVED | {"mask"}
        for value in self.scope.parameters:
            name = stated.get(value) or self._outer_name(value)
            names.append(self._bind(value, allowed(name, reserved), -1))
        self.body.parameters = tuple(names)
        for value in self.scope.parameters:
            self._name_sizes(value)

    def _outer_name(self, value: KerasValue) -> str:
        if value.kind == "variable":
            return self.scopes.path_of(value).rpartition(".")[2]
        return value.name or "x"

    def _bind(self, value: KerasValue, name: str, position: int) -> str:
        """Give a value a name that no value has that is still read."""
        read = {other for other, one in self._bound.items() if one != value and self._alive(other, position)}
        candidate = unused(name, self._sizes_after(position) | read)
        self._bound[candidate] = value
        self.names[value] = candidate
        return candidate

    def _alive(self, name: str, position: int) -> bool:
        return self._last.get(self._bound[name], -1) > position

    def _sizes_after(self, position: int) -> set[str]:
        """The names of sizes that are read after a statement."""
        return {name for value, names in self._size_names.items() for axis, name in names.items()
                if self._last_sizes.get((value, axis), -1) > position}  # fmt: skip

    @property
    def _size_names(self) -> dict[KerasValue, dict[int, str]]:
        if not hasattr(self, "_sizes_by_value"):
            self._sizes_by_value: dict[KerasValue, dict[int, str]] = {}
        return self._sizes_by_value

    def _write(self, item: KerasStep | Scope, position: int) -> None:
        results, target = self._results(item), self._target(item)
        if _is_check(item):
            self.body.statements.append(Statement((), self._step(item)))
            return
        code = self._call(item) if isinstance(item, Scope) else self._step(item)
        indexed = isinstance(item, KerasStep) and any(value.index is not None for value in results)
        if len(results) <= 1 and not indexed:
            value = results[0]
            usual = self._noun(item)
            name = target.names[0] if len(target.names) == 1 else self._later_name(value) or usual
            if name == "x" and name in self._bound and self._alive(name, position) and not isinstance(item, Scope):
                name = self._attribute_noun(item) or name
            bound = self._bind(value, allowed(name, _RESERVED), position)
            self.body.statements.append(Statement((bound,), code))
            self._name_sizes(value, position)
            return
        if isinstance(item, Scope):
            names = target.names if len(target.names) == len(results) else ()
            bound_names = []
            for index, value in enumerate(results):
                if not self._uses.get(value):
                    bound_names.append("_")
                    continue
                name = names[index] if names else self.scopes_name(item, value, index)
                bound_names.append(self._bind(value, allowed(name, _RESERVED), position))
            self.body.statements.append(Statement(tuple(bound_names), code, unpacks=True))
            for value in results:
                self._name_sizes(value, position)
            return
        count = self._outputs(item)
        if count and all(value.index is not None for value in results):
            by_index = {value.index: value for value in results}
            bound_names = []
            for index in range(count):
                if index not in by_index:
                    bound_names.append("_")
                    continue
                if len(target.names) == len(by_index) == 1:  # of a cell, whose state is its output
                    name = target.names[0]
                else:
                    name = target.names[index] if len(target.names) == count else self._part_noun(item, index)
                bound_names.append(self._bind(by_index[index], allowed(name, _RESERVED), position))
            self.body.statements.append(Statement(tuple(bound_names), code, unpacks=True))
            for value in results:
                self._name_sizes(value, position)
            return
        several = KerasValue("step", step=item.serial)
        name = target.names[0] if len(target.names) == 1 else self._noun(item)
        bound = self._bind(several, allowed(name, _RESERVED), position)
        self._last[several] = max(self._last.get(value, -1) for value in results)
        self.body.statements.append(Statement((bound,), code))
        for value in results:
            if value.index is not None:
                self.names[value] = f"{bound}[{value.index}]"

    def scopes_name(self, item: Scope, value: KerasValue, index: int) -> str:
        word = item.path.rpartition(".")[2] if item.function is None else ""
        return f"{word or 'output'}_{index}"

    def _later_name(self, value: KerasValue) -> str:
        """The name of what is computed from a value, as far as each is read once."""
        for _ in range(20):
            if value in self.scope.results:
                return ""
            readers = [item for item in self.scope.items if value in values_read(item)]
            if len(readers) != 1:
                return ""
            names = self._target(readers[0]).names
            if names:
                return names[0] if len(names) == 1 else ""
            results = self._results(readers[0])
            if len(results) != 1:
                return ""
            value = results[0]
        return ""

    def _outputs(self, item: KerasStep) -> int:
        """The number of outputs of a step that returns several."""
        if item.call == "ops.split":
            return item.args[1] if isinstance(item.args[1], int) else len(item.args[1]) + 1
        if item.call == "ops.unstack":
            return int(item.args[1])
        if item.call == "ops.meshgrid":
            return len(item.args)
        if item.call == "hole":
            count = len(self.scopes.lowered.holes[item.serial].node.outputs)
            return count if count > 1 else 0
        if item.call == "layer":
            if self.scopes.lowered.layers[item.layer].call.name in _CELLS:
                return 2
            states = _STATES.get(self.scopes.lowered.layers[item.layer].call.name, ())
            is_kept = self.scopes.lowered.layers[item.layer].call.arguments.get("return_state")
            return 2 if "return_attention_scores" in item.kwargs else 1 + len(states) if states and is_kept else 0
        return 2 if item.call == "ops.top_k" else 0

    def _noun(self, item: KerasStep | Scope) -> str:
        """What a value is called whose author gave it no name."""
        if isinstance(item, Scope):
            return "x"
        if item.call == "layer":
            return "x"
        if item.call == "hole":
            return self.scopes.lowered.holes[item.serial].method
        return _NOUNS.get(item.call, item.call.rpartition(".")[2] if "." in item.call else "x")

    def _attribute_noun(self, item: KerasStep) -> str:
        """The attribute of a layer that is called, if it has one of its own."""
        match = re.fullmatch(r"self\.(\w+)", self.attributes.get(item.layer, "")) if item.layer else None
        return match.group(1) if match is not None else ""

    def _part_noun(self, item: KerasStep, index: int) -> str:
        if item.call == "layer" and (states := _STATES.get(self.scopes.lowered.layers[item.layer].call.name)):
            return ("output", *states)[index]
        return f"{_NOUNS.get(item.call, 'part')}_{index}" if item.call != "ops.split" else f"part_{index}"

    def _name_sizes(self, value: KerasValue, position: int = -1) -> None:
        """Read the sizes of a tensor that are used, as soon as it has a name."""
        axes = sorted({size.axis for item in self.scope.items if isinstance(item, KerasStep)
                       for size in _sizes(item) if size.tensor == value})  # fmt: skip
        if not axes or value not in self.names or value in self._size_names:
            return
        rank = self._rank(value)
        usual = _AXES.get(rank, ())
        names: dict[int, str] = {}
        for axis in axes:
            name = usual[axis] if axis < len(usual) else f"n{axis}"
            names[axis] = unused(name, {*self._bound, *self._sizes_after(position), *names.values()})
        self._size_names[value] = names
        shape = f"ops.shape({self.names[value]})"
        if len(axes) == 1 or not rank:
            for axis in axes:
                self.body.statements.append(Statement((names[axis],), text(f"{shape}[{axis}]")))
        else:
            listed_names = tuple(names.get(axis, "_") for axis in range(rank))
            self.body.statements.append(Statement(listed_names, text(shape), unpacks=True))

    def _rank(self, value: KerasValue) -> int:
        """The number of axes of a tensor; 0 if it is not known."""
        return next((len(placed.shape) for placed in self._places() if placed.value == value), 0)

    def _places(self) -> Sequence[Placed]:
        return list(self.scopes.places.values())

    # --- Expressions ---------------------------------------------------------------------------------------------

    def expression(self, value: KerasValue) -> Code:
        if value in self.names:
            return text(self.names[value])
        if value.kind == "variable":
            path = self.scopes.path_of(value)
            if path not in self.attributes:
                raise NotWrittenError(f"{path} is read outside of its module")
            return text(self.attributes[path])
        if value.kind == "constant":
            return self._array(self.scopes.lowered.constants[value.step])
        if value.kind == "step" and value.step in self._steps:
            code = self._step(self._steps[value.step])
            return code if value.index is None else Code((*code.inside(ATOM), f"[{value.index}]"))
        if value in self._calls:
            return self._call(self._calls[value])
        raise NotWrittenError(f"{self.scope.path or 'the model'} reads a value of another module")

    def _array(self, array: Any) -> Code:
        if array.size > MOST_NUMBERS:
            raise NotWrittenError(f"a constant of {array.size} numbers")
        value = _nested(array.tolist())
        if array.ndim == 0:
            return constant(value)
        dtype = "self.compute_dtype" if array.dtype.kind == "f" else f'"{_DTYPES.get(str(array.dtype), array.dtype)}"'
        return Code(("ops.convert_to_tensor(", *constant(value).parts, f", dtype={dtype})"))

    def _argument(self, value: Any, hint: str = "") -> Code:
        if isinstance(value, KerasValue):
            return self.expression(value)
        if isinstance(value, KerasSize):
            return self._size(value)
        if isinstance(value, FloatDtype):
            return text("self.compute_dtype")
        if isinstance(value, FloatLimit):
            self.body.helpers.add("float_limit")
            return text(f'float_limit("{value.name}", self.compute_dtype)')
        if isinstance(value, tuple):
            is_plain = not any(isinstance(one, (KerasValue, FloatDtype, FloatLimit)) for one in nested(value))
            # Of widths of padding, one number may be an argument of the constructor.
            if is_plain and not any(isinstance(item, tuple) for item in value):
                return constant(value, hint)
            codes = [self._argument(item, hint) for item in value]
            return self._comprehension(codes) or listed(codes)
        return constant(value, hint)

    def _comprehension(self, codes: Sequence[Code]) -> Code | None:
        """A list of the same expression of each element of a list of layers."""
        statements = [Statement((), code) for code in codes]
        if len(codes) < 2 or repetitions(statements, 0, 1) != len(codes):
            return None
        loop = loop_of(statements[:1], len(codes), self.body.elements, statements[1:2])
        name, element = next(iter(loop.names.items()))
        places = {match.group() for text in self.attributes.values()
                  if (match := re.match(rf"{re.escape(name)}\[\d+\]", text))}  # fmt: skip
        if len(loop.names) != 1 or loop.index or len(places) != len(codes):
            return None
        return Code(("[", *loop.statements[0].code.parts, f" for {element} in {name}]"))

    def _size(self, size: KerasSize) -> Code:
        if size.tensor is not None:
            names = self._size_names.get(size.tensor, {})
            if size.axis in names:
                return text(names[size.axis])
            return Code(("ops.shape(", *self.expression(size.tensor).parts, f")[{size.axis}]"))
        neutral = {"+": 0, "-": 0, "*": 1, "//": 1}.get(size.operator)
        if len(size.operands) == 2 and isinstance(size.operands[1], int) and size.operands[1] == neutral:
            return self._argument(size.operands[0])
        operands = [self._argument(operand) for operand in size.operands]
        if size.operator == "math.sqrt":
            return call("math.sqrt", operands)
        if len(operands) == 1:
            return Code(("-", *operands[0].inside(ATOM)), UNARY)
        if size.operator == "int*":
            return call("int", [binary("*", *operands)])
        return binary(size.operator, *operands)

    def _index(self, item: Any) -> Code:
        if isinstance(item, Slice):
            start = None if isinstance(item.start, int) and item.start == 0 else item.start
            limits = [() if limit is None else self._argument(limit).parts for limit in (start, item.stop)]
            step = (":", *self._argument(item.step).parts) if item.step is not None else ()
            return Code((*limits[0], ":", *limits[1], *step))
        return self._argument(item)

    def _step(self, step: KerasStep) -> Code:
        if step.call == "layer":
            layer = self.scopes.lowered.layers[step.layer]
            if step.layer not in self.attributes:
                raise NotWrittenError(f"{layer.torch} is called outside of its module")
            self._note_element(self.attributes[step.layer], self.scopes.graph.nodes[step.node].place)
            named = [(key, self._argument(value, key)) for key, value in step.kwargs.items()]
            args = [self._argument(value) for value in step.args]
            return call(self.attributes[step.layer], args, named + self._training(step.layer))
        if step.call == "hole":
            return call(f"self.{self._method(step)}", [self._argument(value) for value in step.args])
        if step.call == "index":
            items = [self._index(item) for item in step.args[1].items]
            inner = listed(items).parts[1:-1] if len(items) != 1 else items[0].parts
            return Code((*self.expression(step.args[0]).inside(ATOM), "[", *inner, "]"))
        if step.call in LEVELS:
            return binary(step.call, *(self._argument(value) for value in step.args))
        if step.call == "ops.negative":
            return Code(("-", *self._argument(step.args[0]).inside(ATOM)), UNARY)
        name = step.call
        if name.startswith("helpers."):
            name = name.removeprefix("helpers.")
            self.body.helpers.add(name)
        elif name.startswith("activations."):
            name = f"keras.{name}"
        args = [self._argument(value) for value in step.args]
        return call(name, args, [(key, self._argument(value, key)) for key, value in step.kwargs.items()])

    def _method(self, step: KerasStep) -> str:
        """The method that stands for a step without a counterpart."""
        hole = self.scopes.lowered.holes[step.serial]
        if not (name := self.body.method_of(hole)):
            name = unused(allowed(hole.method, self._reserved), self.body.methods)
            self.body.methods[name] = hole
        return name

    def _note_element(self, expression: str, place: CodePlace | None) -> None:
        match = ELEMENT.fullmatch(expression)
        if match is not None and (name := caller_of(place)):
            self.body.elements.setdefault(match.group(1), allowed(name, _RESERVED))

    def _call(self, scope: Scope) -> Code:
        values = [self.expression(value) for value in scope.parameters]
        if scope.function is not None:
            way = self._ways[scope.serial]
            return call(f"self.{way.method}", [*values, *(Code((value,)) for value in way.arguments.values())],
                        self._training_of(scope))  # fmt: skip
        if scope.path not in self.attributes:
            raise NotWrittenError(f"{scope.path} is called outside of its module")
        self._note_element(self.attributes[scope.path], scope.node.place)
        way = None if scope.is_sequential else self._ways.get(scope.serial)
        method = way.method if way is not None else "call"
        # Keras's layers are called with a tensor; a module that is given none is only a method here.
        is_method = method != "call" or not scope.parameters
        function = f"{self.attributes[scope.path]}.{method}" if is_method else self.attributes[scope.path]
        named = [(name, Code((value,))) for name, value in way.arguments.items()] if way is not None else []
        if way is not None and way.order:
            named = [*((name, values[index]) for index, name in way.order if name), *named]
            values = [values[index] for index, name in way.order if not name]
        return call(function, values, [*named, *self._training(scope.path)])

    def _training_of(self, scope: Scope) -> list[tuple[str, Code]]:
        """The argument for a function whose layers are told whether the model is trained."""
        names = {item.layer if isinstance(item, KerasStep) else item.path for item in scope.flat()} - {""}
        return [("training", text("training"))] if names & set(self._trained) else []

    def _training(self, name: str) -> list[tuple[str, Code]]:
        if name in self.scopes.still:
            return [("training", text("False"))]
        return [("training", text("training"))] if name in self._trained else []


def _is_call(item: KerasStep | Scope) -> bool:
    return isinstance(item, Scope) or item.call == "layer"


def _is_check(item: KerasStep | Scope) -> TypeGuard[KerasStep]:
    return isinstance(item, KerasStep) and item.call == CHECK


def item_key(item: KerasStep | Scope) -> object:
    return ("step", item.serial) if isinstance(item, KerasStep) else ("scope", id(item))


def _sizes(step: KerasStep) -> list[KerasSize]:
    return [one for one in step.arguments if isinstance(one, KerasSize) and one.tensor is not None]


def _nested(value: Any) -> Any:
    return [_nested(item) for item in value] if isinstance(value, list) else value


DEEPEST = 3
"""Calls of layers that are written inside each other."""


_STATES = {"layers.GRU": ("hidden",), "layers.LSTM": ("hidden", "cell"), "layers.SimpleRNN": ("hidden",)}
"""The states that recurrent layers return after their output."""

_CELLS = ("layers.GRUCell", "layers.SimpleRNNCell")
"""Cells that return their output, and a list of their only state, which is the output."""

_RESERVED = frozenset({"self", "ops", "layers", "keras", "math", "training", "input"})
_AXES = {1: ("n",), 2: ("b", "t"), 3: ("b", "t", "c"), 4: ("b", "h", "w", "c"), 5: ("b", "d", "h", "w", "c")}
_DTYPES = {"int64": "int32"}
_NOUNS = {
    "+": "total", "-": "difference", "*": "product", "/": "ratio", "@": "product", "**": "power", "ops.reshape": "x",
    "ops.transpose": "x", "index": "part", "ops.concatenate": "joined", "ops.split": "part", "ops.unstack": "part",
    "ops.take": "rows", "ops.where": "x", "ops.mean": "mean", "ops.sum": "total", "ops.softmax": "weights",
    "helpers.attention_weights": "weights", "ops.arange": "positions", "==": "equal", "ops.top_k": "top",
    "ops.meshgrid": "grid",
}  # fmt: skip
