"""The data of an outline: nested steps, each a layer, a function or a module that contains steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from wdport.mapping.kinds.counterpart import KerasCall
from wdport.porting.outline.keras_calls import Default


@dataclass(frozen=True)
class Value:
    """An input or output tensor of a step.

    Attributes:
        source: its source, from the view of the enclosing module: a step, an argument or a parameter.
        names: its axes, in PyTorch's order: ``b c h w``.
        sizes: their sizes, ``b`` for the batch size.
        kind: float, int, bool or complex.
        name: the parameter of the step that receives it.
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
        what: ``layer``: a module of ``torch.nn`` that counts as one layer; ``function``: a function of torch between
            layers; ``module``: any other module, with its steps in ``steps``.
        name: for a module, its path within the enclosing module, with ``#2`` for its second call; for a function, its
            name.
        path: for a module, its path in the model, with the same suffix.
        type: the class or the function, by its full name.
        number: the position in call order, from 1; 0 for a module.
        kind: the layer kind for a row of a table.
        settings: hyper-parameters, or a function's arguments that are not tensors.
        torch: the step in PyTorch, in short.
        inputs, outputs: its tensors.
        keras: the sequence of Keras calls that computes the same.
        keras_text: the same in short, or other code that has to be written.
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
        """Every call of a layer."""
        return [step for step in self.root.walk() if step.what == "layer"]
