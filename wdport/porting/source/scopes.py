"""The calls of modules as scopes: the steps of scope_, and the values that go in and out."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wdport.mapping.kinds.kind import KerasCall
from wdport.porting.graph import CodePlace, FunctionCall, Graph, Node, TracedTensor
from wdport.porting.lowering.keras_graph import KerasGraph, KerasStep, KerasValue, Placed, nested


@dataclass(eq=False)
class Scope:
    """One call of a module that is a class of the port, or of a function of the author's inside it.

    Attributes:
        node: the node of the call of the module.
        path: the module's path.
        items: steps, and the scopes of the modules that it calls, in order.
        parameters: values that are made outside and used inside.
        results: values that are made inside and used outside.
        is_sequential: whether the module is an ``nn.Sequential``, which is no class: ``node`` is its last call.
        returned: the values that the model returns, nested in tuples and dictionaries.
        function: the call of the function; ``None`` for a call of the module itself.
    """

    node: Node
    path: str
    parent: Scope | None
    items: list[KerasStep | Scope] = field(default_factory=list)
    parameters: list[KerasValue] = field(default_factory=list)
    results: list[KerasValue] = field(default_factory=list)
    is_sequential: bool = False
    returned: Any = None
    function: FunctionCall | None = None

    @property
    def serial(self) -> int:
        """A number that no other call has."""
        return self.node.serial if self.function is None else -1 - self.function.serial

    @property
    def place(self) -> CodePlace | None:
        """Where the code calls it."""
        return self.node.place if self.function is None else self.function.place

    def flat(self) -> Iterator[KerasStep | Scope]:
        """Its items, with those of functions in place of their calls."""
        for item in self.items:
            if isinstance(item, Scope) and item.function is not None:
                yield from item.flat()
            else:
                yield item

    def around(self) -> Iterator[Scope]:
        """This scope, and those that it is in."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    def walk(self) -> Iterator[Scope]:
        """This scope and all inside it, the innermost first."""
        for item in self.items:
            if isinstance(item, Scope):
                yield from item.walk()
        yield self


def values_read(item: KerasStep | Scope) -> list[KerasValue]:
    """What a step or a call of a module reads."""
    return list(step_values(item)) if isinstance(item, KerasStep) else list(item.parameters)


def values_made(item: KerasStep | Scope) -> list[KerasValue]:
    """What a step, or a call of a module, returns."""
    return [KerasValue("step", step=item.serial)] if isinstance(item, KerasStep) else list(item.results)


def values_in(value: Any) -> Iterator[KerasValue]:
    """The values in nested arguments, also those whose sizes are read."""
    return (one for one in nested(value) if isinstance(one, KerasValue))


def step_values(step: KerasStep) -> Iterator[KerasValue]:
    return (one for one in step.arguments if isinstance(one, KerasValue))


def owner_path(name: str) -> str:
    """The path of the module that holds a tensor."""
    return name.rpartition(".")[0]


class Scopes:
    """The scopes of a lowered graph; :attr:`root` is the model's."""

    def __init__(
        self, graph: Graph, lowered: KerasGraph, places: Mapping[Any, Placed], still: Collection[str] = (),
        functions: Mapping[int, Sequence[FunctionCall]] | None = None,
    ) -> None:  # fmt: skip
        self.graph, self.lowered, self.places = graph, lowered, places
        self._functions = functions or {}
        self._called: dict[int, Scope] = {}
        self.still = {name for name, layer in lowered.layers.items()
                      if layer.torch in still and differs_in_training(layer.call)}  # fmt: skip
        self.by_serial: dict[int, Scope] = {}
        self.root = self._scope(graph.root, None)
        self.home: dict[int, Scope] = {}
        self._fill()
        self._cross()
        self._join()
        self.trained = self._trained()

    def _scope(self, node: Node, parent: Scope | None) -> Scope:
        assert node.module is not None
        return self.by_serial.setdefault(node.serial, Scope(node, node.module.path, parent))

    def _of(self, serial: int) -> Scope:
        """The scope of the call of a module."""
        if serial in self.by_serial:
            return self.by_serial[serial]
        node = self.graph.nodes[serial]
        parent = self._around(node)
        scope = self._scope(node, parent)
        parent.items.append(scope)
        return scope

    def _around(self, node: Node) -> Scope:
        """The innermost scope around a node."""
        scope = self._of(node.parent) if node.parent >= 0 else self.root
        for call in self._functions.get(node.serial, ()):
            if call.serial not in self._called:
                inner = Scope(scope.node, scope.path, scope, function=call)
                scope.items.append(inner)
                self._called[call.serial] = inner
            scope = self._called[call.serial]
        return scope

    def _fill(self) -> None:
        for step in self.lowered.steps:
            node = self.graph.nodes[step.node]
            scope = self._around(node)
            scope.items.append(step)
            self.home[step.serial] = scope

    def _trained(self) -> set[str]:
        """The names of layers, and the paths of modules, that compute something else in training."""
        trained = {name for name, layer in self.lowered.layers.items() if differs_in_training(layer.call)} - self.still
        for scope in self.root.walk():
            names = {item.layer if isinstance(item, KerasStep) else item.path for item in scope.items}
            if names & trained:
                trained.add(scope.path)
        return trained

    def home_of(self, value: KerasValue) -> Scope:
        """Where a value is made: a variable in the innermost call of the module that holds it."""
        if value.kind == "step":
            return self.home[value.step]
        return self.root

    def _cross(self) -> None:
        """Find what goes in and out of every scope."""
        for scope in self.root.walk():
            for item in scope.items:
                if isinstance(item, KerasStep):
                    for value in step_values(item):
                        self._use(value, scope)
        for placed in self.lowered.outputs:
            self._use(placed.value, self.root, leaves=True)
        self._unify_results()
        for scope in (*self.by_serial.values(), *self._called.values()):
            scope.results.sort(key=lambda value: self._rank(scope, value))
            # The layer that has a variable is built by then, if the other arguments call it.
            scope.parameters.sort(key=lambda value: value.kind == "variable")
            if scope.function is not None:
                stated = list(self.argument_names(scope))
                scope.parameters.sort(key=lambda value: stated.index(value) if value in stated else len(stated))

    def _unify_results(self) -> None:
        """Let all calls of modules of one class return what one of them does, so that they are calls of one method."""
        calls: dict[str, list[Scope]] = {}
        for scope in self.by_serial.values():
            assert scope.node.module is not None
            calls.setdefault(scope.node.module.type, []).append(scope)
        for scopes in calls.values():
            returned = [[self.places.get(tensor.source) for tensor in scope.node.outputs] for scope in scopes]
            used = {
                index
                for scope, outputs in zip(scopes, returned, strict=True)
                for index, placed in enumerate(outputs)
                if placed is not None and placed.value in scope.results
            }
            for scope, outputs in zip(scopes, returned, strict=True):
                for index, placed in enumerate(outputs):
                    is_inside = placed is not None and scope in self.home_of(placed.value).around()
                    if index in used and placed is not None and is_inside and scope.parent is not None:
                        self._use(placed.value, scope.parent)

    def _use(self, value: KerasValue, scope: Scope, leaves: bool = False) -> None:
        if value.kind == "constant" or (value.kind == "variable" and self.is_below(value, scope)):
            return
        home = self.home_of(value)
        chain = list(scope.around())
        if value.kind == "variable":
            home = next((scope_ for scope_ in chain if self.is_below(value, scope_)), self.root)
        common = next(scope_ for scope_ in chain if scope_ in set_of(home))
        for scope_ in chain[: chain.index(common)]:
            if value not in scope_.parameters:
                scope_.parameters.append(value)
        below = list(home.around())
        for scope_ in below[: below.index(common)]:
            if value not in scope_.results:
                scope_.results.append(value)
        if leaves and value not in self.root.results:
            self.root.results.append(value)

    def _join(self) -> None:
        """Make one scope of the calls of all elements of an ``nn.Sequential``."""
        paths = [path for path, module in self.graph.modules.items() if path and module.torch == "Sequential"]
        for path in sorted(paths, key=lambda path: -path.count(".")):
            for scope, begin, end in reversed(self._runs(path)):
                run = scope.items[begin:end]
                first, last = run[0], run[-1]
                node = self.graph.nodes[last.node] if isinstance(last, KerasStep) else last.node
                joined = Scope(node, path, scope, run, values_read(first), values_made(last), is_sequential=True)
                for item in run:
                    if isinstance(item, Scope):
                        item.parent = joined
                scope.items[begin:end] = [joined]

    def _runs(self, path: str) -> list[tuple[Scope, int, int]]:
        """Where a scope calls all elements of an ``nn.Sequential`` one after the other, as the only readers of each
        other's outputs; empty if it is not so in every call."""
        inside = f"{path}."
        inner = [scope.path for scope in self.root.walk() if scope.path.startswith(inside)]
        read_by_itself = [*self.lowered.variables, *(alias.torch for alias in self.lowered.aliases.values())]
        if any(name.startswith(inside) and not any(name.startswith(f"{one}.") for one in inner)
               for name in read_by_itself):  # fmt: skip
            return []
        runs: list[tuple[Scope, int, int]] = []
        for scope in self.root.walk():
            if scope.path == path or scope.path.startswith(inside):
                continue
            places = [place for place, item in enumerate(scope.items) if self.path(item).startswith(inside)]
            if not places:
                continue
            start = self.path(scope.items[places[0]])
            begins = [place for place in places if self.path(scope.items[place]) == start]
            for begin, after in zip(begins, [*begins[1:], len(scope.items)], strict=True):
                chosen = [place for place in places if begin <= place < after]
                if chosen != list(range(begin, begin + len(chosen))):
                    return []
                runs.append((scope, begin, begin + len(chosen)))
        orders = {tuple(self.path(item) for item in scope.items[begin:end]) for scope, begin, end in runs}
        # A layer that is called twice has one name; of functions next to a single layer, a list has the layer.
        elements = sum(name.startswith(inside) and "." not in name.removeprefix(inside) for name in self.graph.modules)
        distinct = all(len(set(order)) == len(order) and len(order) >= min(elements, 2) for order in orders)
        return runs if len(orders) == 1 and distinct and all(self._is_chain(*run) for run in runs) else []

    def _is_chain(self, scope: Scope, begin: int, end: int) -> bool:
        run, others = scope.items[begin:end], [*scope.items[:begin], *scope.items[end:]]
        if any(len(values_read(item)) != 1 or len(values_made(item)) != 1 for item in run):
            return False
        steps = [item for item in run if isinstance(item, KerasStep)]
        if any(item.call != "layer" or item.kwargs or len(item.args) > 1 or item.layer in self.still for item in steps):
            return False
        used = {*scope.results, *(value for item in others for value in values_read(item))}
        linked = all(values_read(after) == values_made(before) and values_made(before)[0] not in used
                     for before, after in itertools.pairwise(run))  # fmt: skip
        # keras.Sequential converts integers to floating-point numbers.
        node = self.graph.nodes[run[0].node] if isinstance(run[0], KerasStep) else run[0].node
        return linked and node.inputs[0].kind == "float"

    def path(self, item: KerasStep | Scope) -> str:
        """The path of the module that an item calls."""
        if isinstance(item, Scope):
            return item.path
        return self.lowered.layers[item.layer].torch if item.layer else ""

    def is_below(self, value: KerasValue, scope: Scope) -> bool:
        """Whether a variable belongs to the scope's module or to one inside it."""
        path = owner_path(self.path_of(value))
        return not scope.path or path == scope.path or path.startswith(f"{scope.path}.")

    def path_of(self, value: KerasValue) -> str:
        """The path of a variable in the PyTorch model."""
        if value.name in self.lowered.aliases:
            return self.lowered.aliases[value.name].path
        return next(path for path, name in self.lowered.variables.items() if name == value.name)

    def _rank(self, scope: Scope, value: KerasValue) -> tuple[int, int, int]:
        """Results in the order of the module's outputs."""
        tensors = scope.node.outputs if scope.function is None else ()
        outputs = [self.places[tensor.source].value for tensor in tensors if tensor.source in self.places]
        return outputs.index(value) if value in outputs else len(outputs), value.step, value.index or 0

    def argument_names(self, scope: Scope) -> dict[KerasValue, str]:
        """The names that the module's ``forward``, or the function, has for values."""
        names: dict[KerasValue, str] = {}
        arguments = scope.node.kwargs if scope.function is None else scope.function.arguments
        for name, value in arguments.items():
            for path, tensor in _paths(name, value):
                if tensor.source in self.places:
                    names.setdefault(self.places[tensor.source].value, path)
        return names


def differs_in_training(call: KerasCall) -> bool:
    """Whether a layer drops values or uses the statistics of the batch in training."""
    inner = call.arguments.get("layer")
    dropping = bool(call.arguments.get("dropout")) or "Dropout" in call.name or "BatchNorm" in call.name
    return dropping or (isinstance(inner, KerasCall) and differs_in_training(inner))


def set_of(scope: Scope) -> list[Scope]:
    return list(scope.around())


def _paths(name: str, value: object) -> Iterator[tuple[str, TracedTensor]]:
    if isinstance(value, TracedTensor):
        yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _paths(f"{name}_{key}", item)
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _paths(f"{name}_{index}", item)
