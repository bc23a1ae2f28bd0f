"""Port a PyTorch model: trace it, lower the graph, write Keras source and its table, and prove them."""

from __future__ import annotations

import importlib
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from wdport.base.errors import MisfitError, UsageError
from wdport.compare.activities import Say
from wdport.compare.reference import translated
from wdport.parity.proving.suggest import Models, Suggestion
from wdport.porting.lowering.keras_graph import axes_text, axis_letters
from wdport.porting.table_text import fold, sections
from wdport.porting.torch_run import SEED, fill
from wdport.recording.calls import cast
from wdport.recording.errors import MODEL_ERRORS, one_line
from wdport.recording.fitted_inputs import call_by_name
from wdport.recording.input_text import read_inputs
from wdport.recording.inputs import Input
from wdport.recording.nested import as_array
from wdport.recording.runs import module_names
from wdport.recording.user_model import build_alone

if TYPE_CHECKING:
    from wdport.parity.verdict import Verdict
    from wdport.porting.graph import Graph, TensorSource
    from wdport.porting.lowering.keras_graph import KerasGraph
    from wdport.porting.source.write import PortSource
    from wdport.porting.training import TrainingTrace

SIZES = ((0, 2), (1, 1))
"""Seed and batch size of the two traces; a batch of one has the other sizes of every axis."""


BATCH_NORM = (
    "Keras's BatchNormalization updates its moving variance with the biased variance of the batch, and PyTorch with "
    "n / (n - 1) of it"
)


FOLDED = "the port trains the weight, and PyTorch its length and its direction"


@dataclass(frozen=True)
class Missing:
    """A step that is not written.

    Attributes:
        step: the call in PyTorch.
        why: why it is not written.
        places: where it is in the code, as ``file.py:12``.
        method: the method that is left to write, as ``Class.method``; "" if nothing was written.
        count: how often the step is computed.
        program: a program of PyTorch that computes the step alone; "" if there is none.
    """

    step: str
    why: str
    places: tuple[str, ...] = ()
    method: str = ""
    count: int = 1
    program: str = field(default="", repr=False)

    def __str__(self) -> str:
        head = f"{self.method}: " if self.method else ""
        where = f" ({', '.join(self.places)})" if self.places else ""
        return f"{head}{self.step}{where}: {self.why}"


@dataclass
class WrittenPort:
    """The result of :func:`write_port`.

    Attributes:
        source: the Python module, ``""`` if it could not be written.
        table: the mapping table, as YAML.
        classes: the number of classes.
        steps: the number of steps of the PyTorch model.
        torch_lines: the number of lines of the PyTorch model's classes that are called.
        missing: the steps without a counterpart; if there is no source, the one that stopped the command.
        differs: a step that is not what PyTorch computes, though it is written; "" if all others are equal.
        verdict: the verdict of verify, with random weights, or with those of the checkpoint if there is one.
        failure: why the proof could not run.
        notes: what the proof leaves out.
        inputs: the inputs, as the table states them.
        chosen: the inputs as :func:`write_port` takes them, if the model's configuration has them.
        trains: whether the proof compares gradients and steps in training mode.
    """

    source: str = ""
    table: str = ""
    classes: int = 0
    steps: int = 0
    torch_lines: int = 0
    missing: tuple[Missing, ...] = ()
    differs: str = ""
    verdict: Verdict | None = None
    failure: str = ""
    notes: tuple[str, ...] = ()
    trains: bool = True
    inputs: tuple[str, ...] = ()
    chosen: tuple[str, ...] = ()
    suggestion: Suggestion | None = field(default=None, repr=False)

    @property
    def written(self) -> bool:
        return bool(self.source)

    @property
    def proved(self) -> bool:
        """Whether verify found the two models equal."""
        return bool(self.verdict)

    @property
    def lines(self) -> int:
        return self.source.count("\n")


def write_port(
    target: str, inputs: Sequence[str] = (), name: str = "", arguments: Mapping[str, object] | None = None,
    checkpoint: str | None = None, say: Say = lambda _: None,
) -> WrittenPort:  # fmt: skip
    """Write the Keras model of ``module:function`` and its table, without a proof.

    Args:
        target: the function that builds the PyTorch model.
        inputs: its inputs, such as ``x: b 3 h=32..64 w=32..64``; a model of transformers, timm or torchvision can do
            without.
        name: name of the Python module to write, without ``.py``; the PyTorch module's with ``_keras`` by default.
        arguments: arguments of the function.
        checkpoint: a path for a function that takes one.
        say: called with a short message at every step, for a progress display.

    Raises:
        WdportError: the model cannot be built or run, or takes another way through its code for other sizes.
    """
    from wdport.porting.construction import constructors, constructors_by_path
    from wdport.porting.graph import with_sources
    from wdport.porting.library_inputs import library_inputs
    from wdport.porting.lowering.comparison import first_difference
    from wdport.porting.lowering.holes import line_of, program_of
    from wdport.porting.lowering.lower import GraphLowering, register
    from wdport.porting.outline.steps import is_layer
    from wdport.porting.source.body import NotWrittenError
    from wdport.porting.source.write import input_shape, with_notes, write_source
    from wdport.porting.tracing import constructed, trace
    from wdport.porting.training import run_in_training, sample_drops

    say("building the PyTorch model")
    with translated():
        with constructors() as modules_made, constructed() as construction:
            module, _ = build_alone(target, checkpoint, arguments)
        if type(module).__module__.startswith("torch.jit."):
            what = "gives a module of TorchScript, whose steps are not visible"
            raise MisfitError(target, what, "return the module before torch.jit.script")
        if integers := [name for name, held in module.named_parameters() if not held.is_floating_point()]:
            fix = "make it a buffer, with register_buffer"
            raise MisfitError(target, f"has the parameter {integers[0]} of whole numbers, which no table moves", fix)
        made_by, buffers = constructors_by_path(module, modules_made), construction(module)
        shared = _sharing_memory(module)
        chosen = () if inputs else library_inputs(module)
        if not inputs and not chosen:
            raise UsageError(
                "--input", "the model's inputs are not known", "state it, such as `--input 'x: b 3 48 48'`"
            )
        declared = read_inputs(inputs or chosen)
        if left_out := [spec.name for spec in declared if spec.optional]:
            what = f"has `{left_out[0]}?`, which may be left out, and a port is called in one way"
            raise UsageError("--input", what, f"state it as `{left_out[0]}: ...`, or leave it out")
        call_by_name(module, declared)
        say("running it at two sizes and in training mode")
        fill(module, SEED)
        names = [spec.name for spec in declared]
        arrays = [[cast(spec.make(seed, batch, 1.0), float) for spec in declared] for seed, batch in SIZES]
        graph = trace(module, names, arrays[0], is_layer)
        if drops := sample_drops(module, graph):
            graph = trace(module, names, arrays[0], is_layer, drops)
        other = trace(module, names, arrays[1], is_layer, drops)
        training = run_in_training(module, names, arrays[0], is_layer, graph, drops)
        for run in (graph, other):
            training.mark(run)
        runs = [_run(one, module, dict(zip(names, inputs_, strict=True)))
                for one, inputs_ in zip((graph, other), arrays, strict=True)]  # fmt: skip
    calls = [node for node in graph.nodes if node.module is None or node.is_layer]
    say(f"finding the layers and functions of Keras for {len(calls)} steps")
    register()
    lowering = GraphLowering(with_sources(graph, True), runs[0][1], buffers, with_sources(other, True))
    lowering.run()
    port = WrittenPort(steps=len(calls), torch_lines=_torch_lines(graph), inputs=_table_inputs(declared, lowering),
                      chosen=chosen)  # fmt: skip
    if (refused := lowering.result.refused) is not None:
        place = line_of(refused.node.place)
        port.missing = (Missing(refused.node.name or "the model", refused.what, (place,) if place else ()),)
        return port
    if any(tensor.kind == "complex" for tensor in graph.root.outputs):
        port.missing = (Missing("the model", "returns complex numbers, which Keras lacks; return torch.view_as_real"),)
        return port
    say("writing the source")
    shapes = [input_shape(lowering.result.inputs[spec.name], [_is_free(spec, axis) for axis in spec.axes])
              for spec in declared if spec.name in lowering.result.inputs]  # fmt: skip
    try:
        source: PortSource = write_source(
            lowering, shapes, type(module).__module__, made_by, training.still, arguments,
            target.rpartition(":")[2] == type(module).__qualname__,
        )  # fmt: skip
    except NotWrittenError as error:
        port.missing = (Missing("the source", str(error)),)
        return port
    stem = name or f"{target.partition(':')[0].rpartition('.')[2]}_keras"
    modules, state = module_names(module), list(module.state_dict())
    parts = tuple(sections(fold(source.rows, modules, state)))
    models = Models(target, f"{stem}:build", port.inputs, dict(arguments or {}), checkpoint,
                    _table_outputs(lowering.result))  # fmt: skip
    port.suggestion = Suggestion(models, source.rows, parts, title="Written by wdport port",
                                 method="from the graph of a run of the PyTorch model")  # fmt: skip
    port.trains, port.notes = _notes(module, graph, lowering.result, training, source, shared)
    port.missing = tuple(
        Missing(method.holes[0].text, method.holes[0].what, method.places, f"{method.class_.name}.{method.name}",
                len(method.holes), program_of(method.holes[0]))
        for method in source.methods
    )  # fmt: skip
    if port.missing:
        say("comparing the steps that are written")
        names_left = ", ".join(one.method for one in port.missing)
        port.suggestion.failure = f"some steps are left to write: {names_left}."
        differing = first_difference(lowering, module, runs)
        port.differs = "" if differing is None else f"{differing.name} ({line_of(differing.place)})"
    port.source, port.classes, port.table = with_notes(source.text, port.notes), source.classes, port.suggestion.text()
    return port


def _notes(
    module: Any, graph: Graph, lowered: KerasGraph, training: TrainingTrace, source: PortSource,
    shared: Sequence[str],
) -> tuple[bool, tuple[str, ...]]:  # fmt: skip
    """Whether training is compared, and what the proof leaves out."""
    reason, untrained = training.reason, source.untrained
    if shared and not reason:
        reason = f"{' and '.join(shared)} have one memory in PyTorch, and are two weights of the port"
    if not any(parameter.requires_grad for parameter in module.parameters()):
        untrained = tuple(name for name, _ in module.named_parameters())
    if untrained and not reason:
        reason = f"the port trains parameters that PyTorch does not, such as {untrained[0]}"
    folded = [path for path, part in graph.modules.items() if any("row reads" in note for note in part.notes)]
    updated = [layer for layer in lowered.layers.values()
               if layer.call.name == "layers.BatchNormalization" and layer.torch not in training.still]  # fmt: skip
    inputs = [guard for guard in lowered.checked if guard.size.after == 0]
    such = f", such as {inputs[0].other_way}," if inputs else ""
    others = f" and {len(folded) - 1} more" if len(folded) > 1 else ""
    return not reason, (
        *(
            [f"the PyTorch code takes another way for some sizes{such} for which the source raises an error"]
            if lowered.checked
            else []
        ),
        *([BATCH_NORM] if updated else []),
        *([f"weight_norm of {folded[0]}{others} is folded: {FOLDED}"] if folded else []),
        *([f"until weights are loaded, these buffers are zeros: {', '.join(source.empty)}"] if source.empty else []),
        *([f"training mode is not compared: {reason}"] if reason else []),
    )


def _sharing_memory(module: Any) -> tuple[str, ...]:
    """Two parameters that are different tensors with the same memory, such as a transposed view; empty if none are."""
    owners: dict[int, str] = {}
    for name, parameter in module.named_parameters():
        pointer = parameter.untyped_storage().data_ptr()
        if pointer and owners.setdefault(pointer, name) != name:
            return owners[pointer], name
    return ()


def _run(graph: Graph, module: Any, inputs: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[TensorSource, Any]]:
    """The inputs of a run and the values of all its tensors."""
    from wdport.porting.replay import replay

    try:
        values = {key: tensor for key, tensor in replay(graph, module, inputs).items() if tensor.device.type != "meta"}
        return inputs, {key: as_array(tensor.to_dense() if tensor.is_sparse else tensor)
                        for key, tensor in values.items()}  # fmt: skip
    except MODEL_ERRORS as error:
        what = f"running its steps one by one raises {one_line(error)}"
        fix = "pass tensors and plain numbers between its steps, not packed sequences or NumPy arrays"
        raise MisfitError(type(module).__name__, what, fix) from error


def _is_free(spec: Input, axis: str) -> bool:
    return axis == "b" or axis in spec.alone


def _torch_lines(graph: Graph) -> int:
    """Lines of the classes of the PyTorch model whose code is called."""
    import inspect

    lines = 0
    for kind in sorted({node.module.type for node in graph.nodes if node.module is not None and not node.is_layer}):
        package, _, name = kind.rpartition(".")
        try:
            lines += len(inspect.getsource(getattr(importlib.import_module(package), name)).splitlines())
        except (ImportError, AttributeError, OSError, TypeError):
            continue
    return lines


def _table_inputs(declared: Sequence[Input], lowering: Any) -> tuple[str, ...]:
    """The inputs as a table states them, with the axes of the Keras model where their order is another."""
    used = {axis for spec in declared for axis in spec.axes}
    return tuple(_table_input(spec, lowering.result.inputs.get(spec.name), used) for spec in declared)


def _table_outputs(lowered: KerasGraph) -> tuple[str, ...]:
    """The axes of the outputs; empty if verify finds them without, as those of PyTorch."""
    orders = [placed.order for placed in lowered.outputs]
    moved = {len(placed.order) for placed in (*lowered.outputs, *lowered.inputs.values()) if not placed.plain}
    if not any(len(order) in moved for order in orders):
        return ()
    return tuple(axes_text(axis_letters(len(order)), order) for order in orders)


def _table_input(spec: Input, placed: Any, used: set[str]) -> str:
    order = placed.order if placed is not None else tuple(range(len(spec.axes)))
    plain = order == tuple(range(len(spec.axes)))
    words = []
    names = list(spec.axes)
    for index, axis in enumerate(names):
        if axis.startswith("_") and not plain:
            usual = axis_letters(len(names))[1:] + string.ascii_lowercase
            names[index] = next(letter for letter in usual if letter not in {"b", *used})
            used.add(names[index])
    for axis, name in zip(spec.axes, names, strict=True):
        if axis == "b":
            words.append("b")
            continue
        size = f"{spec.sizes[axis]}" + (f"..{spec.alone[axis]}" if axis in spec.alone else "")
        words.append(size if name.startswith("_") else f"{name}={size}")
    return f"{spec.name}{'?' if spec.optional else ''}: {axes_text(words, order, names)}{_draw(spec)}"


def _draw(spec: Input) -> str:
    if spec.draw == "normal":
        return ""
    numbers = [f"{number:g}" for number in spec.numbers]
    if spec.draw == "below":
        return f", below {numbers[0]}" + (f" from {numbers[1]}" if len(numbers) > 1 and numbers[1] != "0" else "")
    if spec.draw == "from":
        return f", from {numbers[0]} to {numbers[1]}"
    return f", {spec.draw} {' '.join(numbers)}".rstrip()
