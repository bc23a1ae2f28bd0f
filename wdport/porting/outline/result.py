"""The data of an outline: nested steps, each a layer, a function or a module that contains steps; and its document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from msgspec import Struct

from wdport.base.shared_types import Count, JsonShape, Positive, about
from wdport.mapping.kinds.kind import KerasCall
from wdport.porting.outline.counterparts import Default


@dataclass(frozen=True)
class Value:
    """An input or output tensor of a step.

    Attributes:
        source: its source as seen from the enclosing module: a step, an argument or a parameter.
        names: its axes, in PyTorch's order: ``b c h w``.
        sizes: their sizes, ``b`` for the batch size.
        kind: float, int, bool or complex.
        name: the name of the step's argument that receives it.
    """

    source: str
    names: str
    sizes: tuple[str, ...]
    kind: str = "float"
    name: str = ""

    def __str__(self) -> str:
        return " ".join(self.sizes) or "a number"


@dataclass(frozen=True)
class Step:
    """One step of the outline.

    Attributes:
        what: ``layer``: a module of ``torch.nn`` that counts as one layer; ``function``: a torch function called
            between layers; ``module``: any other module, with its steps in ``steps``.
        name: for a module, its path within the enclosing module, with ``#2`` for its second call; for a function, its
            name.
        path: for a module, its path in the model, with the same suffix.
        type: the class or the function, by its full name.
        number: the position in call order, from 1; 0 for a module.
        kind: the layer kind for a row of a table.
        settings: hyper-parameters, or a function's arguments that are not tensors.
        torch: the step in PyTorch, abbreviated.
        inputs, outputs: its tensors.
        keras: the sequence of Keras calls that computes the same.
        keras_text: the same, abbreviated, or a description of the code that the user must write instead.
        defaults: arguments that must be stated, since their defaults differ in Keras.
        notes: other differences, and what to check.
        parameters: the module's own tensors that its code reads directly, with their shapes.
        steps: the steps inside a module.
        relative: for a function, its texts and its inputs with steps numbered back from this one: equal in repetitions.
    """

    what: Literal["layer", "function", "module"]
    name: str
    path: str = ""
    type: str = ""
    number: int = 0
    kind: str = ""
    settings: Mapping[str, object] = field(default_factory=dict)
    torch: str = ""
    inputs: tuple[Value, ...] = ()
    outputs: tuple[Value, ...] = ()
    keras: tuple[KerasCall, ...] = ()
    keras_text: str = ""
    defaults: tuple[Default, ...] = ()
    notes: tuple[str, ...] = ()
    parameters: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    relative: tuple[str, ...] = ()

    def walk(self) -> Iterator[Step]:
        """This step and all inside it, in call order."""
        yield self
        for step in self.steps:
            yield from step.walk()


@dataclass(frozen=True)
class Outline:
    """The outline of a model.

    Attributes:
        target: the function that builds it, ``module:name``.
        root: the model itself as a step.
        inputs: its inputs.
        uncalled: layers that the run did not call, by path, with their constructors.
        weights: the number of its parameters.
        batch: the batch size of the run.
        notes: notes on the whole model.
        versions: the releases of torch and Keras.
    """

    target: str
    root: Step
    inputs: tuple[Value, ...]
    uncalled: Mapping[str, str]
    weights: int
    batch: int
    notes: tuple[str, ...]
    versions: Mapping[str, str]

    @property
    def layers(self) -> list[Step]:
        return [step for step in self.root.walk() if step.what == "layer"]


class TensorFlow(Struct, frozen=True, rename={"from_": "from"}):
    """An input or output tensor of the model or of a step."""

    from_: Annotated[str, about(
        "Source of the tensor, as seen from the enclosing module: a step, an argument or a parameter.")]  # fmt: skip
    argument: Annotated[str | None, about("Name of the argument that receives the tensor; null if there is none.")]
    axes: Annotated[
        str | None, about("Axes of the tensor in PyTorch's order, such as `b c h w`; null if they are not known.")
    ]
    sizes: Annotated[Sequence[int | str], about("Sizes of the axes; `b` is the batch size.")]
    kind: Annotated[str, about("`float`, `int`, `bool` or `complex`.")]


@dataclass(frozen=True)
class KerasCallFacts:
    """A Keras layer or function."""

    name: Annotated[str, about("Name of the layer or function, such as `layers.Conv2D`.")]
    arguments: Annotated[Mapping[str, object], about("Arguments of the call, by name.")]


@dataclass(frozen=True)
class OutlineStep:
    """One step of the model."""

    what: Annotated[Literal["layer", "function", "module"], about(
        "`function`: a torch function called between layers; `layer`: a layer; `module`: a module that contains "
        "steps.")]  # fmt: skip
    number: Annotated[Positive | None, about("Position in call order; null for a module.")]
    name: Annotated[str, about("Name within the enclosing module.")]
    path: Annotated[str | None, about("Path in the model; null for a function.")]
    type: Annotated[str, about("Full name of the class or function.")]
    kind: Annotated[str | None, about("Layer kind for a row of a mapping table.")]
    settings: Annotated[Mapping[str, object], about("Hyper-parameters, or arguments that are not tensors.")]
    torch: Annotated[str, about("The step in PyTorch, abbreviated.")]
    inputs: Annotated[Sequence[TensorFlow], about("Input tensors.")]
    outputs: Annotated[Sequence[TensorFlow], about("Output tensors.")]
    keras: Annotated[Sequence[KerasCallFacts], about("Keras calls that compute the same result, in order.")]
    keras_text: Annotated[str | None, about(
        "The Keras calls, abbreviated, or a description of the code that you must write instead, such as a "
        "rearrangement of axes.")]  # fmt: skip
    defaults: Annotated[Sequence[Default], about(
        "Arguments that must be specified because their defaults differ.")]  # fmt: skip
    notes: Annotated[Sequence[str], about("Other differences, and what to check.")]
    parameters: Annotated[Mapping[str, JsonShape], about(
        "Shapes of the module's own tensors that its code reads directly.")]  # fmt: skip
    steps: Annotated[Sequence[OutlineStep], about("Steps inside a module.")]


@dataclass(frozen=True)
class OutlineDocument:
    """What ``wdport map outline --json`` prints: what a PyTorch model computes, step by step."""

    model: Annotated[str, about("Function that builds the model, as `module:function`.")]
    parameters: Annotated[Count, about("Number of parameters in the model.")]
    batch: Annotated[Positive, about("Batch size of the run.")]
    versions: Annotated[Mapping[str, str], about("Versions of torch and Keras.")]
    notes: Annotated[Sequence[str], about("Notes for the reader, one sentence each.")]
    uncalled: Annotated[Mapping[str, str], about(
        "Layers that the run did not call, by path, with their constructor calls.")]  # fmt: skip
    inputs: Annotated[Sequence[TensorFlow], about("Inputs of the model.")]
    outputs: Annotated[Sequence[TensorFlow], about("Outputs of the model.")]
    steps: Annotated[Sequence[OutlineStep], about("Steps, in call order.")]


def outline_document(outline: Outline) -> OutlineDocument:
    return OutlineDocument(
        model=outline.target,
        parameters=outline.weights,
        batch=outline.batch,
        versions=outline.versions,
        notes=outline.notes,
        uncalled=outline.uncalled,
        inputs=[_tensor(value) for value in outline.inputs],
        outputs=[_tensor(value) for value in outline.root.outputs],
        steps=[_step(step) for step in outline.root.steps],
    )


def _step(step: Step) -> OutlineStep:
    return OutlineStep(
        what=step.what,
        number=step.number or None,
        name=step.name,
        path=step.path or None,
        type=step.type,
        kind=step.kind or None,
        settings={key: _plain(value) for key, value in step.settings.items()},
        torch=step.torch,
        inputs=[_tensor(value) for value in step.inputs],
        outputs=[_tensor(value) for value in step.outputs],
        keras=[_call(call) for call in step.keras],
        keras_text=step.keras_text or None,
        defaults=[
            replace(row, keras=_plain(row.keras), torch=_plain(row.torch), needed=_plain(row.needed))
            for row in step.defaults
        ],
        notes=step.notes,
        parameters=step.parameters,
        steps=[_step(inner) for inner in step.steps],
    )


def _tensor(value: Value) -> TensorFlow:
    sizes = [int(size) if size.isdecimal() else size for size in value.sizes]
    return TensorFlow(value.source, value.name or None, value.names or None, sizes, value.kind)


def _call(call: KerasCall) -> KerasCallFacts:
    return KerasCallFacts(call.name, {key: _plain(value) for key, value in call.arguments.items()})


def _plain(value: object) -> object:
    """A JSON value; infinite numbers and other objects as text."""
    if isinstance(value, KerasCall):
        return _call(value)
    if isinstance(value, (tuple, list)):
        return [_plain(element) for element in value]
    if isinstance(value, float) and not abs(value) < float("inf"):
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value) if str(value).lstrip("-").isdecimal() else str(value)
    return value if value is None or isinstance(value, (bool, float, str)) else str(value)
