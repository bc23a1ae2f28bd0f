"""What an outline is: steps within steps, each a layer, a function or a module around them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from wdport.porting.outline.keras_calls import Default, KerasCall


@dataclass(frozen=True)
class Value:
    """A tensor that a step is given or gives.

    Attributes:
        source: what it is from, as the module around the step sees it: a step, an argument, a parameter.
        names: its axes, PyTorch's order: ``b c h w``.
        sizes: their sizes, ``b`` for the batch's.
        kind: float, int, bool or complex.
        name: the parameter of the step that it is given to.
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
        what: ``layer``: a module of ``torch.nn`` that is one to a porter; ``function``: a function of torch between
            layers; ``module``: any other module, with its steps in ``steps``.
        name: of a module its path within the module around it, with ``#2`` at its second call; of a function its own.
        path: of a module its path in the model, the same way.
        type: the class or the function, by its full name.
        number: the place in call order, from 1; 0 for a module.
        kind: the layer kind that a row of a table would have.
        settings: hyper-parameters, or a function's arguments that are no tensors.
        torch: all of it as PyTorch has it, in short.
        inputs, outputs: its tensors.
        keras: the calls of Keras, one behind the other, that compute the same.
        there: the same in short, or what else is to be written there.
        defaults: arguments that must be stated, since their default is another there.
        notes: what else differs, and what to look at.
        parameters: tensors of its own that a module reads by itself, with their shapes.
        steps: what is inside a module.
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
    there: str = ""
    defaults: tuple[Default, ...] = ()
    notes: tuple[str, ...] = ()
    parameters: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()

    def every(self) -> Iterator[Step]:
        """This step and all inside it, in call order."""
        yield self
        for each in self.steps:
            yield from each.every()


@dataclass(frozen=True)
class Outline:
    """The outline of a model.

    Attributes:
        target: the function that builds it, ``module:name``.
        root: the model itself as a step.
        inputs: what it was run on.
        uncalled: layers that the run did not call, by path, with their constructors.
        weights: the number of its parameters.
        batch: the batch size of the run.
        notes: what is to be known of the whole.
        versions: the releases of torch and Keras that it is for.
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
        return [step for step in self.root.every() if step.what == "layer"]
