"""Port a PyTorch model: trace it, lower the graph, write Keras source and its table, and prove them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wdport import recorder
from wdport.compare.reference import translated
from wdport.errors import MisfitError, UsageError
from wdport.files.atomic import scratch_folder, write_text
from wdport.files.outputs import writable
from wdport.porting.suggest import Models, Suggestion, Verify, prove
from wdport.porting.torch_run import SEED, fill
from wdport.porting.writing import fold, sections
from wdport.recorder import Input

if TYPE_CHECKING:
    from wdport.parity.verdict import Verdict
    from wdport.porting.graph import Graph
    from wdport.porting.source.write import PortSource

Say = Callable[[str], None]

SIZES = ((0, 2), (1, 1))
"""Seed and batch size of the two traces; a batch of one has the other sizes of every axis."""


BATCH_NORM = (
    "gradients and training mode are not compared: Keras's BatchNormalization updates its moving variance with the "
    "variance of the batch, PyTorch with n / (n - 1) of it"
)
FROZEN = "parameters that do not require gradients are trained by the port; set trainable=False for their layers"
PADDING = (
    "gradients and training mode are not compared: PyTorch gives the row padding_idx of an embedding no gradient, and "
    "Keras does"
)


@dataclass(frozen=True)
class Missing:
    """The first step that is not written: what it is, why, and where it is in the PyTorch model."""

    step: str
    why: str
    place: str = ""

    def __str__(self) -> str:
        return f"{self.step}{f' ({self.place})' if self.place else ''}: {self.why}"


@dataclass
class WrittenPort:
    """The result of :func:`write_port`.

    Attributes:
        source: the Python module, ``""`` if a step is missing.
        table: the mapping table, as YAML.
        classes: the number of classes.
        steps: the number of steps of the PyTorch model.
        torch_lines: the number of lines of the PyTorch model's classes that are called.
        missing: the first step without a counterpart.
        verdict: the verdict of verify, with random weights, or with those of the checkpoint if there is one.
        failure: why the proof could not run.
        notes: what the proof leaves out.
    """

    source: str = ""
    table: str = ""
    classes: int = 0
    steps: int = 0
    torch_lines: int = 0
    missing: Missing | None = None
    verdict: Verdict | None = None
    failure: str = ""
    notes: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    suggestion: Suggestion | None = field(default=None, repr=False)

    @property
    def written(self) -> bool:
        return self.missing is None and bool(self.source)

    @property
    def proved(self) -> bool:
        """Whether verify found the two models equal."""
        return bool(self.verdict)

    @property
    def lines(self) -> int:
        return self.source.count("\n")


def write_port(
    target: str, inputs: Sequence[str] = (), name: str = "", arguments: Mapping[str, object] | None = None,
    checkpoint: str | None = None,
) -> WrittenPort:  # fmt: skip
    """Write the Keras model of ``module:function`` and its table, without a proof.

    Args:
        target: the function that builds the PyTorch model.
        inputs: its inputs, such as ``x: b 3 h=32..64 w=32..64``.
        name: name of the Python module to write, without ``.py``; the PyTorch module's with ``_keras`` by default.
        arguments: arguments of the function.
        checkpoint: a path for a function that takes one.

    Raises:
        WdportError: the model cannot be built or run, or takes another way through its code for other sizes.
    """
    from wdport.porting.construction import arguments_by_path, constructors
    from wdport.porting.graph import with_sources
    from wdport.porting.lowering.lower import GraphLowering, register
    from wdport.porting.outline.steps import is_layer
    from wdport.porting.replay import replay
    from wdport.porting.source.body import NotWrittenError
    from wdport.porting.source.write import input_shape, write_source
    from wdport.porting.tracing import constructed, trace

    if not inputs:
        raise UsageError("--input", "the model's inputs are not known", "state it, such as `--input 'x: b 3 48 48'`")
    with translated():
        declared = recorder.read_inputs(inputs)
        with constructors() as modules_made, constructed() as construction:
            module, _ = recorder.build_alone(target, checkpoint, arguments)
        stated, buffers = arguments_by_path(module, modules_made), construction(module)
        recorder.call_by_name(module, declared)
    fill(module, SEED)
    names = [spec.name for spec in declared]
    arrays = [[recorder.cast(spec.make(seed, batch, 1.0), float) for spec in declared] for seed, batch in SIZES]
    graph = trace(module, names, arrays[0], is_layer)
    other = trace(module, names, arrays[1], is_layer)
    if [node.name for node in graph.nodes] != [node.name for node in other.nodes]:
        what = "calls other functions for inputs of other sizes"
        raise MisfitError(target, what, "state one size for each axis, such as `x: b 3 48 48`")
    if graph.root.is_layer:
        raise MisfitError(target, "is a single layer, which a table cannot name", "build a module that contains it")
    values = replay(graph, module, dict(zip(names, arrays[0], strict=True)))
    register()
    arrays_by_source = {key: tensor.detach().numpy() for key, tensor in values.items()}
    lowering = GraphLowering(with_sources(graph), arrays_by_source, buffers, with_sources(other))
    lowering.run()
    calls = [node for node in graph.nodes if node.module is None or node.is_layer]
    port = WrittenPort(steps=len(calls), torch_lines=_torch_lines(graph), inputs=_table_inputs(declared, lowering))
    if (hole := lowering.result.hole) is not None:
        place = hole.node.place
        where = f"{Path(place.file).name}:{place.line}" if place else ""
        port.missing = Missing(hole.node.name or "the model", hole.what, where)
        return port
    shapes = [input_shape(lowering.result.inputs[spec.name], [_is_free(spec, axis) for axis in spec.axes])
              for spec in declared if spec.name in lowering.result.inputs]  # fmt: skip
    try:
        source: PortSource = write_source(lowering, shapes, type(module).__module__, stated)
    except NotWrittenError as error:
        port.missing = Missing("the source", str(error))
        return port
    stem = name or f"{target.partition(':')[0].rpartition('.')[2]}_keras"
    modules, state = recorder.module_names(module), list(module.state_dict())
    parts = tuple(sections(fold(source.rows, modules, state)))
    models = Models(target, f"{stem}:build", port.inputs, dict(arguments or {}), checkpoint)
    port.suggestion = Suggestion(models, source.rows, parts, title="Written by wdport port",
                                 method="from the graph of a run of the PyTorch model")  # fmt: skip
    padded = any(part.torch == "Embedding" and part.settings.get("padding_idx") is not None
                 for part in graph.modules.values())  # fmt: skip
    port.notes = (
        *([BATCH_NORM] if "layers.BatchNormalization(" in source.text else []),
        *([PADDING] if padded else []),
    )
    port.source, port.classes, port.table = source.text, source.classes, port.suggestion.text()
    return port


def prove_port(port: WrittenPort, verify: Verify, checkpoint: str | None = None) -> None:
    """Prove a port: with random weights, then with those of a checkpoint. Its module is written to a temporary folder,
    and imported from there."""
    suggestion = port.suggestion
    assert suggestion is not None
    name = suggestion.models.model.partition(":")[0]
    with scratch_folder() as folder:
        write_text(writable(Path(folder, f"{name}.py")), port.source)
        sys.path.insert(0, str(folder))
        sys.modules.pop(name, None)
        importlib.invalidate_caches()
        try:
            prove(suggestion, verify)
            if checkpoint and suggestion.proved:
                prove(suggestion, verify, checkpoint)
        finally:
            sys.path.remove(str(folder))
    port.verdict, port.failure, port.table = suggestion.verdict, suggestion.failure, suggestion.text()


def _silent(graph: Graph) -> list[str]:
    """The classes of modules that pass their input on in evaluation mode, such as stochastic depth."""
    return [node.module.type for node in graph.nodes
            if node.module is not None and not node.is_layer and node.outputs and node.serial != graph.root.serial
            and all(inner.same is not None for inner in node.inside)
            and {tensor.source for tensor in node.outputs} <= {tensor.source for tensor in node.inputs}]  # fmt: skip


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


def _table_input(spec: Input, placed: Any, used: set[str]) -> str:
    order = placed.order if placed is not None else tuple(range(len(spec.axes)))
    plain = order == tuple(range(len(spec.axes)))
    words = []
    names = list(spec.axes)
    for index, axis in enumerate(names):
        if axis.startswith("_") and not plain:
            names[index] = next(letter for letter in "cdhwtnefgijklmopqrsuvxyz" if letter not in used)
            used.add(names[index])
    for axis, name in zip(spec.axes, names, strict=True):
        if axis == "b":
            words.append("b")
            continue
        size = f"{spec.sizes[axis]}" + (f"..{spec.alone[axis]}" if axis in spec.alone else "")
        words.append(size if name.startswith("_") else f"{name}={size}")
    text = f"{spec.name}{'?' if spec.optional else ''}: {' '.join(words)}"
    if not plain:
        text += f" -> {' '.join(names[axis] for axis in order)}"
    return text + _draw(spec)


def _draw(spec: Input) -> str:
    if spec.draw == "normal":
        return ""
    numbers = [f"{number:g}" for number in spec.numbers]
    if spec.draw == "below":
        return f", below {numbers[0]}" + (f" from {numbers[1]}" if len(numbers) > 1 and numbers[1] != "0" else "")
    if spec.draw == "from":
        return f", from {numbers[0]} to {numbers[1]}"
    return f", {spec.draw} {' '.join(numbers)}".rstrip()
