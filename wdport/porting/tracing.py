"""Trace one run of a PyTorch model: every call of a module and every function of torch, as a graph; and sizes that
depend on the batch.

A module that counts as one layer is one node; for every other module, the calls inside it are nodes too.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import count
from types import FrameType, MappingProxyType
from typing import TYPE_CHECKING, Any, Literal
from unittest.mock import patch

import torch
from torch.overrides import resolve_name
from torch.utils.weak import WeakTensorKeyDictionary

from wdport.base.errors import MisfitError
from wdport.porting.functions import is_custom, is_identity
from wdport.porting.graph import (
    STOCHASTIC_DEPTH,
    CodePlace,
    Depends,
    FunctionCall,
    Graph,
    Guard,
    HeldTensor,
    Node,
    Size,
    SizeExpression,
    Slice,
    TensorSource,
    TorchModule,
    TracedTensor,
    ValueRead,
    expressions_in,
    leaves_in,
    mapped,
    size_root,
    traced_tensors,
)
from wdport.porting.settings import parametrised, settings_of, torch_class
from wdport.porting.traced_arguments import ArgumentNumber, remembering
from wdport.recording import torch_functions
from wdport.recording.calls import layer_of
from wdport.recording.errors import MODEL_ERRORS, one_line
from wdport.recording.float64 import lifted
from wdport.recording.nested import by_name, tensors_of, to_array
from wdport.recording.torch_functions import highest_precision
from wdport.recording.watching import has_hooks, parameter_names, watched

if TYPE_CHECKING:
    from wdport.models.interface import Array
    from wdport.recording.shared_types import Compute, Given


class CallMismatchError(Exception):
    """The two runs do not make the same calls."""


@dataclass(frozen=True)
class Batches:
    """The batch sizes of the two runs; the first is the larger."""

    first: int
    second: int

    def size(self, a: int, b: int) -> Size:
        """A number of the first run, expressed in terms of the batch if the second run has another."""
        return Size(a, self._text(int(a), int(b)), getattr(a, "expression", None))

    def _text(self, a: int, b: int) -> str:
        if a == b:
            return ""
        # Proportional to the batch, such as b * heads; otherwise the batch plus a constant.
        if a * self.second == b * self.first:
            times = a // self.first
            return "b" if times == 1 else f"{times}b"
        rest = a - self.first
        if b - self.second == rest:
            return f"b{rest:+d}"
        return ""


def merge(a: Graph, b: Graph, batches: Batches) -> None:
    """Express every size of ``a`` in terms of the batch; raises :class:`CallMismatchError` if ``b`` has other calls."""
    if len(a.nodes) != len(b.nodes) or any(_call(x) != _call(y) for x, y in zip(a.nodes, b.nodes, strict=True)):
        raise CallMismatchError
    pairs: list[tuple[tuple[Any, Any], ...]]
    pairs = [((x.args, y.args), (x.kwargs, y.kwargs), (x.outputs, y.outputs))
             for x, y in zip(a.nodes, b.nodes, strict=True)]  # fmt: skip
    records = [tuple(_merged(x, y, batches) for x, y in pair) for pair in pairs]
    for node, (args, kwargs, outputs) in zip(a.nodes, records, strict=True):
        node.args, node.kwargs, node.outputs = args, kwargs, outputs


def _call(node: Node) -> tuple[str, int, int]:
    return node.name, node.parent, len(node.outputs)


def _merged(a: Any, b: Any, batches: Batches) -> Any:
    if isinstance(a, TracedTensor) and isinstance(b, TracedTensor):
        if a.source != b.source or len(a.shape) != len(b.shape):
            raise CallMismatchError
        return replace(a, shape=tuple(batches.size(x, y) for x, y in zip(a.shape, b.shape, strict=True)))
    if isinstance(a, Slice) and isinstance(b, Slice):
        pairs = ((a.start, b.start), (a.stop, b.stop), (a.step, b.step))
        return Slice(*(_merged(x, y, batches) for x, y in pairs))
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        if list(a) != list(b):
            raise CallMismatchError
        return {key: _merged(a[key], b[key], batches) for key in a}
    if isinstance(a, tuple) and isinstance(b, tuple):
        if len(a) != len(b):
            raise CallMismatchError
        return tuple(_merged(x, y, batches) for x, y in zip(a, b, strict=True))
    if isinstance(a, int) and isinstance(b, int) and not isinstance(a, bool):
        return batches.size(a, b)
    return a


MOST_NODES = 200_000
"""Maximum number of calls in one run; more are a loop, whose graph would be unreadable."""

_RANKS: Mapping[str, int] = {"constant": 0, "parameter": 1, "input": 2}

IsLayer = Callable[[torch.nn.Module], bool]
"""Selects the modules that are one node."""

Keep = Callable[[Node, Sequence[torch.Tensor]], None]
"""Called with each function's node and the tensors that it returned."""


def no_layer(_: torch.nn.Module) -> bool:
    """Every function of torch is a node, also those inside layers."""
    return False


def trace(
    module: torch.nn.Module, names: Sequence[str], inputs: Sequence[Array], is_layer: IsLayer,
    drops: Mapping[str, float] = MappingProxyType({}),
) -> Graph:  # fmt: skip
    """The graph of one run of a float64 module; raises :class:`MisfitError`. ``drops`` are the rates of modules that
    are one node and drop whole samples in training, by path."""
    # Copies: the model may change its inputs in place, and they are used again.
    tensors = [torch.from_numpy(array.copy()) for array in inputs]
    try:
        with (
            highest_precision(),
            lifted(),
            traced(module, names, is_layer, drops=drops) as graph,
            torch.no_grad(),
        ):
            module(*tensors)
    except MODEL_ERRORS as error:
        what = f"running it raises {one_line(error)}"
        raise MisfitError(type(module).__name__, what, other_inputs(error)) from error
    return graph()


@contextmanager
def traced(
    module: torch.nn.Module, names: Sequence[str], is_layer: IsLayer = no_layer, keep: Keep | None = None,
    drops: Mapping[str, float] = MappingProxyType({}),
) -> Iterator[Callable[[], Graph]]:  # fmt: skip
    """Inside, the first call of ``module`` is traced; yields a function that returns its graph. ``names`` are the
    names of its inputs."""
    tracer = _Tracer(module, names, is_layer, keep, drops)
    parts = dict(module.named_modules())
    watching = watched(parts, tracer.called, MOST_NODES)
    with remembering(size_root), _lengths(), watching, torch_functions.functions(tracer.function):
        yield tracer.graph


@contextmanager
def _lengths() -> Iterator[None]:
    """Inside, ``len`` of a tensor is its size; Python's own makes a plain number of it."""
    plain_function = builtins.len

    def length(value: Any) -> int:
        is_sized = isinstance(value, torch.Tensor) and value.ndim > 0
        return value.shape[0] if is_sized else plain_function(value)

    builtins.len = length
    try:
        yield
    finally:
        builtins.len = plain_function


@dataclass
class Construction:
    """How the code of the constructors made tensors: the nodes, and the source of each buffer by its path."""

    nodes: Sequence[Node] = ()
    constants: Sequence[Array] = ()
    sources: Mapping[str, TensorSource] = field(default_factory=dict)


def other_inputs(error: Exception) -> str:
    """What to state if a model raises an error on inputs of the notation."""
    boolean = "bool tensor" in str(error)
    return "state inputs that it takes, with `--input`" + (
        "; a mask of 0 and 1 is `NAME: b t, below 2`" if boolean else ""
    )


@contextmanager
def constructed() -> Iterator[Callable[[torch.nn.Module], Construction]]:
    """Inside, a model is built; yields a function that tells how its buffers were made."""
    tracer = _Tracer(torch.nn.Module(), (), no_layer)
    tracer.open()
    with torch_functions.functions(tracer.function):
        yield tracer.construction


_SHAPE_ALONE = frozenset((
    "new_zeros", "new_ones", "new_full", "new_empty", "new_tensor", "zeros_like", "ones_like", "full_like",
    "empty_like", "rand_like", "randn_like",
))  # fmt: skip
"""Functions that do not read values of a tensor."""

_WITH_NUMBERS = frozenset((
    "pad", "__getitem__", "roll", "add", "__add__", "__radd__", "sub", "__sub__", "mul", "__mul__", "__rmul__", "div",
    "__truediv__", "pow", "__pow__",
))  # fmt: skip
"""Functions that change nothing with some numbers, such as 1 or 0."""

_READS = frozenset((
    "__bool__", "__int__", "__float__", "__index__", "item", "tolist", "numpy", "__contains__", "equal", "allclose",
))  # fmt: skip


class _Tracer:
    """Records the functions of torch that are called outside a layer by :meth:`function`, modules by :meth:`called`."""

    def __init__(
        self, module: torch.nn.Module, names: Sequence[str], is_layer: IsLayer, keep: Keep | None = None,
        drops: Mapping[str, float] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        self._nodes: list[Node] = []
        self._reads: dict[str, None] = {}
        self._value_reads: list[ValueRead] = []
        self._outside = False
        self._returned: object = None
        self._guards: dict[Guard, None] = {}
        self._constants: list[Array] = []
        self._origins: MutableMapping[torch.Tensor, TensorSource] = WeakTensorKeyDictionary()
        self._open: list[Node] = []
        self._frames: list[tuple[FrameType, FunctionCall]] = []
        self._function_calls = 0
        self._neutral: list[Node] = []
        self._gradients = [True]
        self._with_gradients: set[TensorSource] = set()
        self._without_gradients: set[TensorSource] = set()
        self._detached: dict[TensorSource, TracedTensor] = {}
        self._is_layer, self._keep, self._names, self._within = is_layer, keep, names, False
        first: dict[int, str] = {}
        self._modules = {path: _facts(path, part, first.setdefault(id(part), path))
                         for path, part in module.named_modules(remove_duplicate=False)}  # fmt: skip
        for path, rate in drops.items():
            self._modules[path] = replace(self._modules[path], torch=STOCHASTIC_DEPTH, settings={"rate": rate})
        self._tensors = dict(_held(module))
        # Tied tensors keep the first name; a list of tensors that a module holds is not in its state.
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            self._origins[tensor] = TensorSource(self._tensors[name].kind, name)

    def open(self) -> None:
        """Record functions that are called outside of a module, whose sizes are numbers."""
        self._open.append(Node(-1, ""))
        self._outside = True

    def construction(self, module: torch.nn.Module) -> Construction:
        sources = {path: self._origins[tensor] for path, tensor in module.named_buffers() if tensor in self._origins}
        return Construction(self._nodes, self._constants, sources)

    def graph(self) -> Graph:
        self._frames = []
        # What does nothing with the arguments of one instance, and something with those of another.
        changing = {node.place for node in self._nodes if node.same is None and node.place is not None}
        for node in self._neutral:
            node.same = None if node.place in changing else node.same
        return Graph(
            self._nodes[0], self._nodes, tuple(self._reads), self._modules, self._tensors, self._constants,
            tuple(self._guards), tuple(self._value_reads), self._returned,
        )  # fmt: skip

    def called(self, name: str, caller: str, part: torch.nn.Module, compute: Compute, arguments: Given) -> object:
        """Record one call of a module; a handler for :func:`wdport.recording.watching.watched`."""
        if self._within or (name and type(part).forward is torch.nn.Sequential.forward):
            return compute(*arguments)  # the layers of a Sequential are steps of the enclosing module
        if not self._nodes:
            self._name_inputs(arguments)
        return self._run_module(name, part, compute, arguments, self._functions(sys._getframe()))

    def _run_module(
        self, name: str, part: torch.nn.Module, compute: Compute, arguments: Given,
        functions: tuple[FunctionCall, ...],
    ) -> object:  # fmt: skip
        path = layer_of(name)
        arguments_by_name = self._plain(_named(part, *arguments))
        # The steps of hooks stand outside of a layer, and for the model itself there is no outside.
        is_layer = self._is_layer(part) and (bool(path) or not has_hooks(part))
        is_script = isinstance(part, torch.jit.ScriptModule)
        is_layer = is_layer or is_script or self._modules[path].torch == STOCHASTIC_DEPTH
        if is_layer:
            arguments_by_name = self._detaching(arguments_by_name, functions)
        node = self._begin(Node(-1, name, kwargs=arguments_by_name, module=self._modules[path], is_layer=is_layer,
                                place=_place(), functions=functions))  # fmt: skip
        if is_script:
            node.around.append("is compiled by TorchScript: its steps are not visible")
        if node.is_layer:
            self._within = True
        else:
            self._open.append(node)
        versions = _versions(arguments) if node.is_layer else []
        try:
            with self._modes() if node.serial == 0 else nullcontext():
                output = compute(*arguments)
        except BaseException:
            self._within = False
            raise
        finally:
            if not node.is_layer:
                self._open.pop()
        if node.is_layer:
            if node.depends == "constant" and any(True for _ in part.parameters()):
                node.depends = "parameter"
            if not getattr(part, "inplace", False):
                output = _apart(output, (*arguments[0], *arguments[1].values()))
            self._end(node, output)
            self._note_gradients(node, any(True for _ in part.parameters()))
            self._outdate(node, versions, tensors_of(output))
            self._within = False
        else:
            node.outputs = tuple(traced_tensors(self._plain(output)))
        if node.serial == 0:
            self._returned = _nested(output, count())
        return output

    def _name_inputs(self, arguments: Given) -> None:
        """The tensors that the model itself is called with are its inputs, by name."""
        tensors = tensors_of([list(arguments[0]), dict(arguments[1])])
        for name, tensor in zip(self._names, tensors, strict=False):
            self._origins[tensor] = TensorSource("input", name)

    def function(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> object:
        """Compute and record one call of a function."""
        if self._within or not self._open:
            return function(*args, **kwargs)
        name = _name_of(function)
        # Before the call: a function in place changes what its arguments are.
        before = None if name.endswith("set_") else (self._indexed(name, args), self._plain(kwargs))
        versions = _versions((args, kwargs))
        result = function(*args, **kwargs)
        if before is None:
            return result
        if "dropout" in name and not (name.endswith("_") or kwargs.get("inplace") or any(args[3:])):
            result = _apart(result, args)
        if name in ("torch.Tensor.shape", "torch.Tensor.size"):
            return result if self._outside else self._sizes(args[0], result, args[1:], kwargs)
        self._record(name, before, args, result, versions)
        return result

    def _sizes(self, tensor: torch.Tensor, result: object, args: Sequence[Any], kwargs: Mapping[str, Any]) -> object:
        """Sizes that remember which they are."""
        source = self._traced_tensor(tensor).source

        def size(axis: int, value: int) -> Size:
            return Size(value, "", SizeExpression("size", tensor=source, axis=axis), self._guard)

        if isinstance(result, torch.Size):
            return torch.Size(size(axis, value) for axis, value in enumerate(result))
        axes = [*args, *kwargs.values()]
        return size(int(axes[0]) % max(tensor.ndim, 1), result) if axes and isinstance(result, int) else result

    def _guard(self, name: str, size: Size, other: int) -> None:
        if size.expression is not None:
            self._guards[Guard(size.expression, name, other, int(size))] = None

    def _indexed(self, name: str, args: tuple[Any, ...]) -> Any:
        """Positional arguments; an index that is a list stands in a tuple, as it is not a tuple of indices."""
        if name.endswith(("__getitem__", "__setitem__")) and isinstance(args[1], list):
            args = (args[0], (args[1],), *args[2:])
        return self._plain(args)

    def _record(
        self, name: str, recorded: tuple[Any, Any], args: tuple[Any, ...], result: object, versions: Versions
    ) -> None:
        """Record one function call, unless it returns no tensor."""
        short = name.rpartition(".")[2]
        output = args[0] if short == "__setitem__" else result
        inputs, tensors = list(traced_tensors(recorded)), tensors_of(output)
        if not tensors:
            depending = [tensor for tensor in inputs if self._depends([tensor]) != "constant"]
            if short in _READS and depending and not _is_hint(result):
                if any(self._depends([tensor]) == "input" for tensor in depending):
                    self._reads[self._open[-1].name] = None
                # A number that the code makes of a weight is another one for other weights.
                self._value_reads.append(ValueRead(name, _place(), depending[0], len(self._nodes)))
            return
        in_place = short == "__setitem__" or (short.endswith("_") and not short.endswith("__"))
        base = tensors[0]._base if in_place else None
        before = None if base is None else self._traced_tensor(base)
        functions = self._functions(sys._getframe())
        positional, named = recorded if in_place else self._detaching(recorded, functions)
        node = self._begin(Node(-1, name, positional, named, place=_place(), functions=functions))
        self._end(node, output)
        self._note_gradients(node)
        # Padding and slices whose widths are computed from sizes do something for other sizes.
        sized = short in ("pad", "__getitem__") and any(True for _ in expressions_in(recorded))
        if (
            len(tensors) == 1
            and not sized
            and not is_custom(name)
            and is_identity(short, inputs, node.outputs[0], recorded)
        ):
            node.same = node.inputs[0].source
            if short in _WITH_NUMBERS and any(isinstance(leaf, ArgumentNumber) for leaf in leaves_in(recorded)):
                self._neutral.append(node)
        if base is not None and before is not None:
            # A function in place on a view changes the tensor that it is a view of.
            self._origins[base] = TensorSource("node", "", node.serial, len(tensors))
            node.base = (before.source, self._traced_tensor(base))
        self._outdate(node, versions, [*tensors, base])
        if self._keep is not None:
            self._keep(node, tensors)

    @contextmanager
    def _modes(self) -> Iterator[None]:
        """Inside, ``torch.no_grad`` and its like in the model's code tell whether gradients are computed; the trace
        itself computes none."""
        of_contexts: Mapping[type, Callable[[Any], bool]] = {
            torch.no_grad: lambda _: False, torch.enable_grad: lambda _: True,
            torch.inference_mode: lambda context: not context.mode,
            torch.set_grad_enabled: lambda context: context.mode,
        }  # fmt: skip

        def patched(kind: Any, wants: Callable[[Any], bool]) -> tuple[Any, Any]:
            enter, leave = kind.__enter__, kind.__exit__

            def enters(context: Any) -> None:
                self._gradients.append(wants(context))
                enter(context)

            def leaves(context: Any, *error: Any) -> None:
                self._gradients.pop()
                leave(context, *error)

            return patch.object(kind, "__enter__", enters), patch.object(kind, "__exit__", leaves)

        with ExitStack() as stack:
            for kind, wants in of_contexts.items():
                for change in patched(kind, wants):
                    stack.enter_context(change)
            yield

    def _note_gradients(self, node: Node, has_parameters: bool = False) -> None:
        """Note whether gradients flow to what a node returned, or would if the code did not keep them from it."""
        flowing = has_parameters or any(self._has_gradient(tensor) for tensor in node.inputs)
        sources = [tensor.source for tensor in node.outputs if tensor.kind == "float"] if flowing else []
        if not node.detaches:
            self._with_gradients.update(sources)
            self._without_gradients.update(sources if not self._gradients[-1] else ())

    def _has_gradient(self, tensor: TracedTensor) -> bool:
        kind = tensor.source.kind
        if kind == "node":
            return tensor.source in self._with_gradients
        return kind == "parameter" or (kind == "input" and tensor.kind == "float")

    def _detaching(self, arguments: Any, functions: tuple[FunctionCall, ...]) -> Any:
        """Arguments of a call; those that the code computed without gradients, of a call with them, are detached."""
        if not (self._gradients[-1] and self._without_gradients):
            return arguments

        def detached(value: object) -> object:
            if not isinstance(value, TracedTensor) or value.source not in self._without_gradients:
                return value
            if value.source not in self._detached:
                node = self._begin(Node(-1, "torch.Tensor.detach", (value,), place=_place(), functions=functions))
                node.outputs = (replace(value, source=TensorSource("node", "", node.serial, 0)),)
                node.same = value.source
                self._detached[value.source] = node.outputs[0]
            return self._detached[value.source]

        return mapped(arguments, detached)

    def _functions(self, frame: FrameType | None) -> tuple[FunctionCall, ...]:
        """The calls of the author's functions from ``forward`` of the module that runs to a frame."""
        frames: list[FrameType] = []
        while frame is not None and frame.f_code is not _Tracer._run_module.__code__:
            module, name = f"{frame.f_globals.get('__name__')}.", frame.f_code.co_name
            if name == "forward" and not module.startswith(_SKIPPED):
                break
            if not (module.startswith((*_SKIPPED, *_LIBRARIES)) or name.startswith("<")):
                frames.append(frame)
            frame = frame.f_back
        # Without a `forward` of the author's around them, they are hooks and wrappers.
        is_inside = frame is not None and frame.f_code.co_name == "forward"
        before, calls = self._frames, list[tuple[FrameType, FunctionCall]]()
        for one in reversed(frames if is_inside else []):
            call = before[len(calls)] if len(calls) < len(before) else None
            if call is None or call[0] is not one:
                before, call = [], (one, self._function_call(one))
            calls.append(call)
        # The frames are held until the next call, so that one that is the same is of the same call.
        self._frames = calls
        return tuple(call for _, call in calls)

    def _function_call(self, frame: FrameType) -> FunctionCall:
        code, self._function_calls = frame.f_code, self._function_calls + 1
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        values = {name: frame.f_locals.get(name) for name in names}
        tensors = {name: self._traced_tensor(value) for name, value in values.items()
                   if isinstance(value, torch.Tensor) and value in self._origins}  # fmt: skip
        place = _place_of(frame.f_back) if frame.f_back is not None else None
        key, is_method = (code.co_filename, code.co_firstlineno), names[:1] == ("self",)
        return FunctionCall(self._function_calls, key, code.co_name, place, tensors, is_method)

    def _begin(self, node: Node) -> Node:
        if len(self._nodes) >= MOST_NODES:
            what = f"calls more than {MOST_NODES} functions of torch in one pass"
            raise MisfitError("the model", what, "trace the part that it repeats")
        node.serial, node.parent = len(self._nodes), self._open[-1].serial if self._open else -1
        shape_alone = node.module is None and node.name.rpartition(".")[2] in _SHAPE_ALONE
        node.depends = "constant" if shape_alone else self._depends(node.inputs)
        self._nodes.append(node)
        if self._open:
            self._open[-1].inside.append(node)
        return node

    def _end(self, node: Node, output: object) -> None:
        tensors = tensors_of(output)
        for index, tensor in enumerate(tensors):
            self._origins[tensor] = TensorSource("node", "", node.serial, index)
        node.several = isinstance(output, (Mapping, list, tuple))
        node.outputs = tuple(self._traced_tensor(tensor) for tensor in tensors)

    def _outdate(self, node: Node, versions: Versions, current: Sequence[torch.Tensor | None]) -> None:
        """Tensors that share memory with one that the call changed have other values from here on."""
        changed = [tensor for tensor, version in versions if tensor._version != version]
        if not changed:
            return
        for tensor, source in list(self._origins.items()):
            if any(tensor is other for other in current) or not any(_shares(tensor, other) for other in changed):
                continue
            index = len(node.outputs) + 1 + len(node.outdated)
            self._origins[tensor] = TensorSource("node", "", node.serial, index)
            node.outdated = (*node.outdated, (source, self._traced_tensor(tensor)))

    def _depends(self, inputs: Sequence[TracedTensor]) -> Depends:
        dependences: list[Depends] = ["constant"]
        for tensor in inputs:
            kind = tensor.source.kind
            if kind == "node":
                dependences.append(self._nodes[tensor.source.node].depends)
            else:
                dependences.append("input" if kind == "input" else "constant" if kind == "constant" else "parameter")
        return max(dependences, key=_RANKS.__getitem__)

    def _plain(self, value: Any) -> Any:
        """A call's arguments, with tensors as :class:`TracedTensor` and all others as plain values."""
        if isinstance(value, torch.Tensor):
            return self._traced_tensor(value)
        value = by_name(value)
        if isinstance(value, Mapping):
            return {str(key): self._plain(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return tuple(self._plain(item) for item in value)
        if isinstance(value, slice):
            return Slice(self._plain(value.start), self._plain(value.stop), self._plain(value.step))
        if value is None or value is ... or isinstance(value, (bool, int, float, complex, str)):
            return value
        named = isinstance(value, (torch.dtype, torch.device, torch.memory_format))
        return str(value) if named else f"<{type(value).__name__}>"

    def _traced_tensor(self, tensor: torch.Tensor) -> TracedTensor:
        source = self._origins.get(tensor)
        # Made by the code itself, outside of any recorded call, such as one that a module holds.
        if source is None and self._outside and isinstance(tensor, torch.nn.Parameter):
            # Its first values are random numbers, which nothing can be computed from; a copy would double the memory.
            source = self._origins[tensor] = TensorSource("parameter")
        if source is None and torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            what = "calls torch.vmap or another transform of torch.func, inside which tensors hide an axis"
            raise MisfitError("the model", what, "compute all samples at once, without the transform")
        if source is None:
            source = self._origins[tensor] = TensorSource("constant", index=len(self._constants))
            self._constants.append(to_array(tensor))
        return TracedTensor(source, tuple(map(int, tensor.shape)), str(tensor.dtype).removeprefix("torch."))


def _nested(value: object, places: Iterator[int]) -> Any:
    """The places of tensors in nested tuples and dictionaries, without what is none; a tuple of one is that one."""
    if isinstance(value, torch.Tensor):
        return next(places)
    value = by_name(value)
    if isinstance(value, Mapping):
        named = {key if isinstance(key, int) else str(key): _nested(item, places) for key, item in value.items()}
        return {key: item for key, item in named.items() if item is not None} or None
    listed = [_nested(item, places) for item in value] if isinstance(value, (list, tuple)) else []
    listed = [item for item in listed if item is not None]
    return listed[0] if len(listed) == 1 else tuple(listed) or None


Versions = Sequence[tuple[torch.Tensor, int]]
"""Tensors, and how often each was changed in place."""


def _versions(arguments: object) -> Versions:
    return [(tensor, tensor._version) for tensor in tensors_of(arguments) if not tensor.is_inference()]


def _apart(output: object, inputs: Sequence[object]) -> object:
    """The output as another tensor, if it is one of the inputs itself: in evaluation mode, a dropout returns what it is
    given, and in training what is used after it may be either."""
    if not isinstance(output, torch.Tensor) or torch.is_grad_enabled():
        return output
    return output.detach() if any(output is tensor for tensor in inputs) else output


def _shares(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two tensors have memory in common."""
    if first is second:
        return True
    if first.layout is not torch.strided or second.layout is not torch.strided:
        return False
    if first.untyped_storage().data_ptr() != second.untyped_storage().data_ptr() or not first.untyped_storage().size():
        return False
    return _overlap(first, second)


def _overlap(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two tensors of one storage have an element in common."""
    if first.dtype != second.dtype:
        return True
    # Storages at one address can have two sizes, as those of weights that a file's memory is mapped to.
    elements = torch.arange(max(one.untyped_storage().size() for one in (first, second)) // first.element_size())
    places = [elements.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).reshape(-1)
              for tensor in (first, second)]  # fmt: skip
    return bool(torch.isin(*places).any())


_SKIPPED = ("torch.", "wdport.porting.", "wdport.recording")
_LIBRARIES = ("contextlib.", "functools.", "einops.")
"""Modules whose functions are not the author's, besides."""


def _place() -> CodePlace | None:
    """Where the model's code calls the function that is recorded; ``None`` if torch's own code or ours does."""
    frame = sys._getframe(1)
    while frame.f_back is not None and f"{frame.f_globals.get('__name__')}.".startswith(_SKIPPED):
        frame = frame.f_back
    module = str(frame.f_globals.get("__name__"))
    if module.startswith("wdport.") and not module.startswith("wdport.families."):
        return None
    return _place_of(frame)


def _place_of(frame: FrameType) -> CodePlace:
    """Where the code of a frame is."""
    positions = list(frame.f_code.co_positions())
    line, end_line, column, end_column = (number or 0 for number in positions[frame.f_lasti // 2])
    name = str(frame.f_globals.get("__name__"))
    return CodePlace(name, frame.f_code.co_filename, frame.f_code.co_qualname, line, column, end_line, end_column)


def _is_hint(result: object) -> bool:
    """Whether torch's transformers look if a mask is causal, and it is not: they use the mask itself then, as they
    could for any mask."""
    frame = sys._getframe(1)
    while frame.f_back is not None and f"{frame.f_globals.get('__name__')}.".startswith(_SKIPPED):
        if frame.f_code.co_name == "_detect_is_causal_mask":
            return result is False
        frame = frame.f_back
    return False


def _name_of(function: Callable[..., Any]) -> str:
    """The name of a function, such as ``torch.Tensor.view``; for a property, its name after the class."""
    if isinstance(function, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return f"torch.ops.{function}".removesuffix(".default")
    name = resolve_name(function) or f"torch.{getattr(function, '__name__', function)}"
    return name.removesuffix(".__get__")


def _facts(path: str, part: torch.nn.Module, first: str) -> TorchModule:
    kind = torch_class(part)
    buffers = {name: tuple(buffer.shape) for name, buffer in part.named_buffers(recurse=False)
               if name not in part._non_persistent_buffers_set}  # fmt: skip
    return TorchModule(
        path, f"{type(part).__module__}.{type(part).__qualname__}", kind, settings_of(part) if kind else {},
        {name: tuple(parameter.shape) for name, parameter in part.named_parameters(recurse=False)}, buffers,
        tuple(parametrised(part)),
        {name: value for name, value in vars(part).items() if isinstance(value, bool) and name != "training"},
        "" if path == first else first, _summary(type(part)),
    )  # fmt: skip


def _summary(kind: type) -> str:
    """The first sentence of a class's own docstring; "" if it has none that is one line of plain text."""
    text = " ".join(str(vars(kind).get("__doc__") or "").strip().partition("\n\n")[0].split())
    sentence = text.partition(". ")[0].removesuffix(".")
    return sentence if len(sentence) <= MOST_SUMMARY and not set(sentence) & set('"\\`') else ""


MOST_SUMMARY = 80
"""Characters of a sentence that stands in one line of a source."""


def _held(module: torch.nn.Module) -> Iterator[tuple[str, HeldTensor]]:
    """Every parameter and buffer, by path. If no parameter requires gradients, the model is loaded for inference."""
    trains = any(parameter.requires_grad for parameter in module.parameters())
    first: dict[int, str] = {}
    parameters, buffers = module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False)
    for name, tensor in (*parameters, *buffers):
        same = first.setdefault(id(tensor), name)
        dtype = str(tensor.dtype).removeprefix("torch.")
        trained = tensor.requires_grad if trains else isinstance(tensor, torch.nn.Parameter)
        kind: Literal["parameter", "buffer"] = "parameter" if isinstance(tensor, torch.nn.Parameter) else "buffer"
        yield name, HeldTensor(kind, tuple(tensor.shape), dtype, "" if same == name else same, trained)


def _named(part: torch.nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, object]:
    order = parameter_names(part)
    names = [*order, *(f"input_{index}" for index in range(len(order), len(args)))]
    return {**dict(zip(names, args, strict=False)), **kwargs}
