"""The graph of one run of a PyTorch model, as data: calls of modules and functions, and the tensors between them.

A graph holds no module and no tensor, apart from the values of constants. It compares by value, and
:mod:`wdport.porting.replay` runs it again.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from wdport.porting.traced_arguments import ARITHMETIC, ArgumentNumber, remember_arithmetic
from wdport.recording.code_constants import ComparedSize

if TYPE_CHECKING:
    from wdport.models.interface import Array

STOCHASTIC_DEPTH = "StochasticDepth"
"""The class of :attr:`TorchModule.torch` for any module that drops whole samples in training."""

Depends = Literal["constant", "parameter", "input"]
"""What a value depends on: constants in the code, weights and buffers, or the model's inputs; the last one applies."""


@dataclass(frozen=True)
class TensorSource:
    """The source of a tensor: the ``name`` of an input, a parameter, a buffer or a plain attribute, the constant
    ``index`` of the graph, or output ``index`` of the node ``node``."""

    kind: Literal["input", "parameter", "buffer", "constant", "node"]
    name: str = ""
    node: int = -1
    index: int = 0


@dataclass(frozen=True)
class SizeExpression:
    """How an integer was computed from sizes: ``size`` of a tensor's axis, or an operator of two operands."""

    operator: str
    operands: tuple[SizeExpression | float, ...] = ()
    tensor: TensorSource | None = None
    axis: int = 0

    @property
    def after(self) -> int:
        """The serial of the first node after those that make the tensors."""
        inner = [operand.after for operand in self.operands if isinstance(operand, SizeExpression)]
        return max([self.tensor.node + 1] if self.tensor is not None else inner, default=0)

    def __str__(self) -> str:
        if self.tensor is not None:
            return f"{self.tensor.name or self.tensor.node}.shape[{self.axis}]"
        nested = [isinstance(operand, SizeExpression) and operand.tensor is None for operand in self.operands]
        texts = [f"({operand})" if inner else str(operand)
                 for operand, inner in zip(self.operands, nested, strict=True)]  # fmt: skip
        return f"{self.operator}{texts[0]}" if len(texts) == 1 else f" {self.operator} ".join(texts)


class Size(ComparedSize):
    """An integer that is a size, or was computed from sizes.

    Attributes:
        text: its representation: ``b`` for the batch size.
        expression: how the model's code computed it, if it is known.
        note: called with each comparison by the model's code: the operator, this size and the other number.
    """

    text: str
    expression: SizeExpression | None
    note: Callable[[str, Size, int], None] | None

    def __new__(
        cls, value: int, text: str = "", expression: SizeExpression | None = None,
        note: Callable[[str, Size, int], None] | None = None,
    ) -> Size:  # fmt: skip
        size = super().__new__(cls, value)
        size.text, size.expression, size.note = text or str(int(value)), expression, note
        return size

    def __repr__(self) -> str:
        return self.text

    __str__ = __repr__

    def __reduce__(self) -> tuple[Any, ...]:
        return Size, (int(self), self.text, self.expression)

    def compared(self, name: str, other: int) -> None:
        if self.note is not None:
            self.note(name, self, other)

    def _asked(self, name: str, other: object) -> Any:
        """Whether the size is, or is not, a number; noted if the model's code asks."""
        caller = str(sys._getframe(2).f_globals.get("__name__"))
        is_number = isinstance(other, int) and not isinstance(other, (bool, ComparedSize))
        if is_number and not caller.startswith(("torch.", "wdport.", "numpy")):
            self.compared(name, int(other))  # type: ignore[call-overload]
        return getattr(int, f"__{name}__")(self, other)

    def __eq__(self, other: object) -> Any:
        return self._asked("eq", other)

    def __ne__(self, other: object) -> Any:
        return self._asked("ne", other)

    def __bool__(self) -> bool:
        return bool(self._asked("ne", 0))

    __hash__ = int.__hash__

    def _computed(self, name: str, other: object, swapped: bool = False) -> Any:
        return _computed(self, name, other, swapped, self.note)

    def __neg__(self) -> Any:
        if self.expression is None:
            return -int(self)
        return Size(-int(self), "", SizeExpression("-", (self.expression,)), self.note)


class SizeFloat(float):
    """A floating-point number that was computed from sizes."""

    expression: SizeExpression

    def _computed(self, name: str, other: object, swapped: bool = False) -> Any:
        return _computed(self, name, other, swapped, None)


remember_arithmetic(Size, SizeFloat)


def _computed(
    size: Size | SizeFloat, name: str, other: object, swapped: bool,
    note: Callable[[str, Size, int], None] | None,
) -> Any:  # fmt: skip
    """The result of an operator, which is a size as well."""
    if not isinstance(other, (int, float)) or isinstance(other, bool):
        return NotImplemented
    function, symbol = ARITHMETIC[name]
    operands = (size, other) if not swapped else (other, size)
    value = function(*(int(number) if isinstance(number, int) else float(number) for number in operands))
    if size.expression is None or isinstance(value, complex):
        return value
    return of_size(value, SizeExpression(symbol, tuple(map(_operand, operands))), note)


def of_size(
    value: float, expression: SizeExpression, note: Callable[[str, Size, int], None] | None = None
) -> Size | SizeFloat:
    """A number that was computed from sizes."""
    if isinstance(value, int):
        return Size(value, "", expression, note)
    number = SizeFloat(value)
    number.expression = expression
    return number


def _operand(number: Any) -> SizeExpression | float:
    """What an expression has of a number: a size by its expression, an argument of a constructor as it is."""
    expression = getattr(number, "expression", None)
    if isinstance(expression, SizeExpression):
        return expression
    if isinstance(number, ArgumentNumber):
        return number  # type: ignore[return-value]
    return int(number) if isinstance(number, int) else float(number)


def size_root(number: Any, value: float) -> Any:
    """``math.sqrt`` of a number, which is computed from sizes if the number is."""
    expression = getattr(number, "expression", None)
    return value if expression is None else of_size(value, SizeExpression("math.sqrt", (expression,)))


@dataclass(frozen=True)
class TracedTensor:
    """A tensor that was passed to or from a call; ``dtype`` by its name in torch, such as ``float64``."""

    source: TensorSource
    shape: tuple[int, ...]
    dtype: str

    @property
    def kind(self) -> str:
        """The kind of its values: float, int, bool or complex."""
        if self.dtype == "bool" or "complex" in self.dtype:
            return "bool" if self.dtype == "bool" else "complex"
        return "float" if "float" in self.dtype else "int"


@dataclass(frozen=True)
class Slice:
    start: object
    stop: object
    step: object


@dataclass(frozen=True)
class CodePlace:
    """A place in source code: the module's name, its file, the function, and the position of the call."""

    module: str
    file: str
    function: str
    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True)
class FunctionCall:
    """A call of a function of the author's, in which functions of torch and modules are called.

    Attributes:
        serial: its position among all such calls.
        key: the file and the line of the function.
        name: the function's name.
        place: the place of the call.
        arguments: those of its arguments that are tensors, by name.
        is_method: whether it is a method of a class.
    """

    serial: int
    key: tuple[str, int]
    name: str
    place: CodePlace | None
    arguments: Mapping[str, TracedTensor]
    is_method: bool = False


@dataclass(frozen=True)
class TorchModule:
    """Facts about a module.

    Attributes:
        path: its path in the model.
        type: its class by its full name.
        torch: the class of ``torch.nn`` whose ``forward`` it runs, such as ``Conv2d``; "" for a module of others.
        settings: its hyper-parameters, for a class of ``torch.nn``.
        parameters: the shapes of its own parameters, by name.
        buffers: those of its own buffers that are in the state_dict.
        notes: facts about its weights that its settings do not show.
        flags: its attributes that are true or false.
        same_as: the first path of the same module, if it has several.
        summary: the first sentence of its class's docstring.
    """

    path: str
    type: str
    torch: str
    settings: Mapping[str, Any]
    parameters: Mapping[str, tuple[int, ...]]
    buffers: Mapping[str, tuple[int, ...]]
    notes: tuple[str, ...] = ()
    flags: Mapping[str, bool] = field(default_factory=dict)
    same_as: str = ""
    summary: str = ""


@dataclass(frozen=True)
class HeldTensor:
    """A parameter or a buffer by path; ``same_as`` is the first path of the same tensor, if it has several, and
    ``trained`` whether it gets a gradient."""

    kind: Literal["parameter", "buffer"]
    shape: tuple[int, ...]
    dtype: str
    same_as: str = ""
    trained: bool = True


@dataclass
class Node:
    """One call.

    Attributes:
        serial: its position among all nodes.
        name: name of the function, such as ``torch.Tensor.view``, or of the call, such as ``conv1#2``.
        args: its positional arguments; tensors are :class:`TracedTensor`, sizes :class:`Size`.
        kwargs: its named arguments. All tensors of a module are here, by the names of its parameters.
        outputs: its output tensors.
        several: whether they are a list, even a list of one.
        module: the module that was called.
        is_layer: whether the module is one layer, so that nothing inside it is a node.
        parent: the serial of the enclosing module call; -1 for the model's own.
        depends: what its outputs depend on.
        same: the tensor that it returns unchanged, for a cast to the same dtype, for example.
        base: for a function in place on a view, the tensor that it is a view of, before and after.
        outdated: other tensors that share memory with one that the call changed in place, before and after.
        place: the place in the model's code.
        inside: the nodes inside a module call.
        around: notes on the call that its arguments do not show.
        rate: the share of values that a function of attention drops in training alone.
        functions: the author's functions between the enclosing module's ``forward`` and the call, the outermost first.
    """

    serial: int
    name: str
    args: tuple[object, ...] = ()
    kwargs: Mapping[str, object] = field(default_factory=dict)
    outputs: tuple[TracedTensor, ...] = ()
    several: bool = False
    module: TorchModule | None = None
    is_layer: bool = True
    parent: int = -1
    depends: Depends = "constant"
    same: TensorSource | None = None
    base: tuple[TensorSource, TracedTensor] | None = None
    outdated: tuple[tuple[TensorSource, TracedTensor], ...] = ()
    place: CodePlace | None = None
    inside: list[Node] = field(default_factory=list)
    around: list[str] = field(default_factory=list)
    rate: float = 0.0
    functions: tuple[FunctionCall, ...] = ()

    @property
    def detaches(self) -> bool:
        """Whether it keeps gradients from what it returns unchanged."""
        return (
            self.name.rpartition(".")[2] == "detach" and self.depends != "constant" and self.inputs[0].kind == "float"
        )

    @property
    def inputs(self) -> list[TracedTensor]:
        return list(traced_tensors([*self.args, *self.kwargs.values()]))


@dataclass(frozen=True)
class Guard:
    """A comparison of a size by the model's code, and its result: another size may take another way."""

    size: SizeExpression
    operator: str
    other: int
    value: int

    @property
    def outcome(self) -> bool:
        return bool(getattr(operator, self.operator)(self.value, self.other))

    @property
    def held(self) -> str:
        """The operator that was true of the size, as Python writes it: the opposite one if the comparison was false."""
        return _COMPARISONS[self.operator][not self.outcome]

    @property
    def other_way(self) -> str:
        """The condition under which the code takes another way, such as ``x.shape[2] % 2 != 0``."""
        return f"{self.size} {_COMPARISONS[self.operator][self.outcome]} {self.other}"


_COMPARISONS = {"lt": ("<", ">="), "le": ("<=", ">"), "gt": (">", "<="), "ge": (">=", "<"), "eq": ("==", "!="),
                "ne": ("!=", "==")}  # fmt: skip


@dataclass(frozen=True)
class ValueRead:
    """A value of a tensor that the model's Python code reads, such as in a branch: the function that reads it, the
    place in the code, the tensor, and the serial of the next node."""

    function: str
    place: CodePlace | None
    tensor: TracedTensor
    before: int


@dataclass(frozen=True)
class Graph:
    """A run.

    Attributes:
        root: the node of the model itself, with all others inside it.
        nodes: every node, by its serial.
        reads: modules whose Python code reads values that depend on the inputs, such as in a branch.
        modules: every module of the model, by its path.
        tensors: every parameter and buffer of the model, by its path.
        constants: values of the tensors that the code made outside of any function that was seen.
        guards: the comparisons of sizes.
        value_reads: what Python code reads of tensors that depend on the inputs.
        returned: the outputs as they are nested in tuples and dictionaries, by their places in those of ``root``.
    """

    root: Node
    nodes: Sequence[Node]
    reads: tuple[str, ...]
    modules: Mapping[str, TorchModule]
    tensors: Mapping[str, HeldTensor]
    constants: Sequence[Array]
    guards: tuple[Guard, ...] = ()
    value_reads: tuple[ValueRead, ...] = ()
    returned: object = None

    def readers(self) -> dict[TensorSource, list[Node]]:
        """The readers of each tensor: functions and layers, not the enclosing modules."""
        readers: dict[TensorSource, list[Node]] = {}
        for node in self.nodes:
            if node.module is None or node.is_layer:
                for tensor in node.inputs:
                    readers.setdefault(tensor.source, []).append(node)
        return readers


def with_sources(graph: Graph, gradients: bool = False) -> Graph:
    """The graph in which the readers of a tensor that a node returns unchanged read the node's input; with
    ``gradients``, unless it keeps them from it."""
    sources: dict[TensorSource, TensorSource] = {}

    def first(value: object) -> object:
        if isinstance(value, TracedTensor) and value.source in sources:
            return replace(value, source=sources[value.source])
        return value

    for node in graph.nodes:
        if node.same is not None and not (gradients and node.detaches):
            sources[node.outputs[0].source] = sources.get(node.same, node.same)

    def first_base(base: tuple[TensorSource, TracedTensor] | None) -> tuple[TensorSource, TracedTensor] | None:
        return None if base is None else (sources.get(base[0], base[0]), base[1])

    copies = {node.serial: replace(node, args=mapped(node.args, first), kwargs=mapped(dict(node.kwargs), first),
                                   outputs=node.outputs if node.same else mapped(node.outputs, first),
                                   base=first_base(node.base), functions=tuple(
                                       replace(one, arguments=mapped(one.arguments, first)) for one in node.functions))
              for node in graph.nodes}  # fmt: skip
    for copy in copies.values():
        copy.inside = [copies[inner.serial] for inner in copy.inside]
    return replace(graph, root=copies[graph.root.serial], nodes=list(copies.values()))


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Nested tuples, mappings and slices with every leaf changed."""
    if isinstance(value, Mapping):
        return {key: mapped(item, change) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(mapped(item, change) for item in value)
    if isinstance(value, Slice):
        return Slice(*(mapped(limit, change) for limit in (value.start, value.stop, value.step)))
    return change(value)


def traced_tensors(value: object) -> Iterator[TracedTensor]:
    """The tensors in nested tuples and mappings, in order."""
    if isinstance(value, TracedTensor):
        yield value
    elif isinstance(value, Mapping):
        yield from traced_tensors(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from traced_tensors(item)


def leaves_in(value: object) -> Iterator[object]:
    """What nested tuples, lists, mappings and slices consist of."""
    if isinstance(value, Mapping):
        value = tuple(value.values())
    elif isinstance(value, Slice):
        value = (value.start, value.stop, value.step)
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from leaves_in(item)
    else:
        yield value


def expressions_in(value: object) -> Iterator[SizeExpression]:
    """How the sizes in nested tuples, mappings and slices were computed."""
    for leaf in leaves_in(value):
        if isinstance(leaf, (Size, SizeFloat)) and leaf.expression is not None:
            yield leaf.expression


def numbers(value: object) -> list[int]:
    """The integers in nested tuples."""
    # In Python a bool is an integer.
    if isinstance(value, (bool, TracedTensor)):
        return []
    if isinstance(value, int):
        return [value]
    return [n for item in value for n in numbers(item)] if isinstance(value, (list, tuple)) else []
