"""The definition of a layer kind: its tensors with their rules, its layouts and named axes, its counterpart in
Keras, and the hyper-parameters to compare.

A kind is data. Texts in braces, such as ``{weight}``, are filled in from :attr:`Kind.names`, which a row of a table
may change; ``{layer}`` is the number of one layer within a PyTorch RNN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from wdport.mapping.axes import Combine, Rule

SPACES: Mapping[int, tuple[str, ...]] = {1: ("l",), 2: ("h", "w"), 3: ("d", "h", "w")}
"""Names of the spatial axes by their number."""


@dataclass(frozen=True, eq=False)
class Atom:
    """A named axis. ``space`` is its number among the spatial axes of an image, or -1; ``channel`` whether it is
    the image's channels."""

    name: str
    size: int
    space: int = -1
    channel: bool = False


Group = tuple[Atom, ...]
Axes = tuple[Group, ...]


def keras_permutation(axes: Axes) -> tuple[int, ...] | None:
    """PyTorch's axes in the order of Keras's layout: spatial ones in their own order, then the channels. ``None`` if
    the order is the same, or if the tensor is not an image with one axis of channels."""
    spaces = [axis for axis, group in enumerate(axes) if group and group[0].space >= 0]
    channels = [axis for axis, group in enumerate(axes) if group and group[0].channel]
    if not spaces or len(channels) != 1:
        return None
    ordered = iter(sorted(spaces, key=lambda axis: axes[axis][0].space))
    order = [next(ordered) if axis in spaces else axis for axis in range(len(axes))]
    # An image that already has its channels last only needs its spatial axes in order.
    if channels[0] < spaces[-1]:
        order = [*(axis for axis in order if axis not in channels), *channels]
    return None if order == list(range(len(axes))) else tuple(order)


def keras_order(axes: Axes) -> Axes:
    order = keras_permutation(axes)
    return axes if order is None else tuple(axes[axis] for axis in order)


def keras_axis(axes: Axes | None, axis: int) -> int | None:
    """The index of an axis in Keras's layout, the last as -1; ``None`` if the order is PyTorch's."""
    order = keras_permutation(axes) if axes is not None else None
    if order is None or not 0 <= axis < len(order):
        return None
    position = order.index(axis)
    return -1 if position == len(order) - 1 else position


def keras_group(group: Group) -> Group:
    """The atoms of a flattened axis in the order of Keras's Flatten: rows, columns, channels; others are unchanged."""
    if not any(atom.space >= 0 for atom in group) or not any(atom.channel for atom in group):
        return group
    spaces = sorted((atom for atom in group if atom.space >= 0), key=lambda atom: atom.space)
    channels = [atom for atom in group if atom.channel]
    return (*(atom for atom in group if atom.space < 0 and not atom.channel), *spaces, *channels)


Settings = Mapping[str, Any]
"""Hyper-parameters of a module of PyTorch by name; for an optional tensor, whether it exists."""


@dataclass(frozen=True)
class KerasCall:
    """A layer (``layers.Conv2D``) or a function (``ops.pad``, ``activations.gelu``) and the arguments that it needs.

    ``origin`` gives the hyper-parameter of PyTorch's layer that an argument corresponds to, if any.
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    origin: Mapping[str, str] = field(default_factory=dict)


def layer(name: str, arguments: Mapping[str, object], **origin: str) -> KerasCall:
    """``keras.layers.NAME``; ``origin`` gives the PyTorch hyper-parameters of arguments."""
    return KerasCall(f"layers.{name}", dict(arguments), origin)


@dataclass(frozen=True)
class TorchCall:
    """A call of a PyTorch layer: its first input's shape and axes, its arguments by name with the kind of their values
    (``bool`` for a boolean mask), which of its outputs are read, and whether a layer of its own pads, even if Keras's
    ``same`` would do."""

    shape: tuple[int, ...] = ()
    axes: Axes | None = None
    arguments: Mapping[str, str] = field(default_factory=dict)
    used: frozenset[int] = frozenset({0})
    padded_before: bool = False


@dataclass(frozen=True)
class Counterpart:
    """The sequence of Keras calls that computes the same in inference; empty if Keras has no such layer.

    Attributes:
        calls: layers and functions; each layer of an RNN of several layers is one.
        notes: differences besides defaults, or what to do if there are no calls.
        kind: the layer's kind in a table, if it is not the one that declares the counterpart.
        move: a rearrangement with channels last, as a rule, if the counterpart is just that.
        partial: a call that computes a part, with which the last note begins, if there are no calls.
    """

    calls: tuple[KerasCall, ...] = ()
    notes: tuple[str, ...] = ()
    kind: str = ""
    move: str = ""
    partial: KerasCall | None = None


FindCounterpart = Callable[[str, Settings, TorchCall], Counterpart]
"""Finds a counterpart from the class's name in ``torch.nn``, the hyper-parameters and the call."""


How = Literal[
    "equal",
    "epsilon",
    "tuple",
    "padding",
    "zeros",
    "counted",
    "ceil",
    "complement",
    "present",
    "none",
    "true",
    "ones",
    "shape",
    "names",
    "needed",
    "is",
    "not",
    "unit",
    "channels",
    "shared",
    "instance",
    "masked",
    "flat",
    "margins",
    "time",
]

Level = Literal["differs", "training"]
"""``differs``: the layer computes something else. ``training``: inference does not use the setting."""


@dataclass(frozen=True)
class Compared:
    """One hyper-parameter of the two layers, by attribute, and how it is compared.

    ``equal``: the same number, flag or text. ``epsilon``: the same number, where PyTorch's ``None`` means the epsilon
    of float32. ``tuple``: a number or one per spatial axis. ``padding``: PyTorch's
    widths against Keras's ``same`` and ``valid``. ``zeros``: PyTorch pads with zeros. ``counted``: whether padding
    counts in a mean, which it never does in Keras. ``complement``: they add up to one. ``present``: PyTorch's
    tensor exists if Keras's flag is true. ``none``: PyTorch's is ``None``, false or zero, since Keras has no
    counterpart. ``true``: Keras's flag is true. ``ones``: PyTorch's is one. ``ceil``: rounding up, which Keras does
    by padding. ``shape``: PyTorch's shape against the axes that Keras normalises. ``names``: the same function by
    name. ``needed``: PyTorch's is true, since Keras has no alternative. ``is``: Keras's is ``value``, which is what
    PyTorch always does; ``not``: PyTorch's is anything else. ``unit``: Keras's is one. ``channels``: Keras's axis or
    format is that of PyTorch's channels; ``shared``: it shares a slope along all others, where ``torch`` is PyTorch's
    number of slopes (``num_parameters``), of which one is a slope for all values. ``instance``: PyTorch has a group
    per channel. ``masked``: Keras's mask leaves out PyTorch's padding index. ``flat``: Keras moves no axis before it
    flattens. ``margins``: PyTorch's widths, last axis first, against Keras's. ``time``: PyTorch's steps come first
    only if the port exchanges these axes.

    A path of attributes on Keras's side is joined by dots. ``level`` states what uses the setting.
    """

    torch: str
    keras: str
    how: How
    level: Level = "differs"
    value: object = None


@dataclass(frozen=True)
class Part:
    """One or more tensors of a kind and the variables that they fill.

    Attributes:
        torch: names of the tensors within the module.
        keras: paths of the variables within the layer; none if the tensor is dropped.
        others: alternative paths of the variables.
        rules: alternatives, distinguished by shape.
        combine: the arithmetic that combines several tensors.
        flatten: the rule if the input was flattened, with ``{torch}`` and ``{keras}`` for the orders.
        normed: whether the tensor may be stored as magnitude and direction (``torch.nn.utils.weight_norm``).
        drop: the reason for leaving it out.
    """

    torch: tuple[str, ...]
    keras: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    others: tuple[tuple[str, ...], ...] = ()
    combine: Combine = ""
    flatten: str = ""
    normed: bool = False
    drop: str | None = None

    def alternatives(self) -> tuple[Part, ...]:
        """Return the part, and its variants for PyTorch's two formats of a normalised weight, old and new."""
        if not self.normed:
            return (self,)
        (name,) = self.torch
        module, dot, last = name.rpartition(".")
        new = f"{module}{dot}parametrizations.{last}.original"
        stored = ((f"{name}_g", f"{name}_v"), (f"{new}0", f"{new}1"))
        return (self, *(replace(self, torch=pair, combine="weight_norm", normed=False) for pair in stored))


@dataclass(frozen=True)
class Inner:
    """A submodule of the module and a sublayer of the layer that compute the same."""

    torch: str
    keras: tuple[str, ...]
    shift: bool = False


OutputAxes = Literal["", "image", "features", "flat"]
"""How the axes of a layer's output follow from those of its input; see :attr:`TorchClass.output`."""


@dataclass(frozen=True)
class TorchClass:
    """A class of PyTorch by its public name, such as ``torch.nn.Conv2d``, or by that of a base class of several.

    Attributes:
        name: its name.
        when: whether a module is of the kind, if its settings decide it, such as a bidirectional LSTM.
        output: how the axes of the output follow from those of the input: ``image``: both are images (or sequences)
            with channels first, if they have more than two axes; ``features``: the last axis is a new one; ``flat``: a
            reshape; empty if they are the same.
        settings: hyper-parameters that a module does not have as attributes under their constructor's names.
    """

    name: str
    when: Callable[[Any], bool] | None = None
    output: OutputAxes = ""
    settings: Callable[[Any], Mapping[str, object]] = lambda module: {}

    @property
    def short(self) -> str:
        """The name without its modules, such as ``Conv2d``."""
        return self.name.rpartition(".")[2]


def torch_classes(
    *names: str, when: Callable[[Any], bool] | None = None, output: OutputAxes = ""
) -> tuple[TorchClass, ...]:
    """Return classes of ``torch.nn`` by name."""
    return tuple(TorchClass(f"torch.nn.{name}", when, output) for name in names)


Shape = tuple[int, ...]
Arguments = Mapping[str, Any]
"""Arguments of a function by name; for a tensor, true."""


@dataclass(frozen=True)
class TorchFunction:
    """A function of ``torch.nn.functional`` that computes what the modules of a class compute.

    Attributes:
        name: its name, such as ``conv2d``.
        module: the class in ``torch.nn``, such as ``Conv2d``.
        parameters: its parameters in order, as far as they are used.
        aliases: other names of it, such as that of an operator.
        settings: the hyper-parameters of the class that follow from the shape of the weight (empty without one), or
            whose default is another; those that are arguments of the function need not be named.
    """

    name: str
    module: str
    parameters: tuple[str, ...] = ("input",)
    settings: Callable[[Shape, Arguments], Arguments] = lambda shape, arguments: {}
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class LayerCall:
    """The layer of Keras that computes what a module computes, if its arguments follow from the module's one by one,
    for every shape and layout of the input.

    Attributes:
        layer: its class in ``keras.layers``.
        arguments: by argument of Keras's layer, the hyper-parameter of PyTorch's module; its default, if the call of a
            function does not state it.
    """

    layer: str
    arguments: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Kind:
    """A kind of layer, such as ``conv2d``.

    Attributes:
        name: its name in a table.
        torch: the classes of PyTorch whose modules are of this kind.
        functions: functions of ``torch.nn.functional`` that compute the same.
        keras: the classes of ``keras.layers`` that may be, the most likely first; none if Keras has no such class, or
            it is not known by its class. A table's row then names a layer that the user wrote, with the variables of
            ``parts``.
        parts: its tensors; none for a layer without weights.
        axes: layouts of its activations, PyTorch's to Keras's, the most likely first.
        compared: hyper-parameters of the two layers.
        names: suffixes within the PyTorch module that a row's ``names:`` may change.
        inner: sublayers that are also compared.
        flatten: the layout of the output if the layer itself flattens.
        index: the index that the kind adds.
        padded: what the port may pad the input with in a preceding layer, since PyTorch's layer pads internally:
            ``zeros``, ``module`` if the module states it (its ``padding_mode``), or ``any`` if only the values decide;
            empty for a kind that does not pad.
        cropped: whether the port may crop the output in a following layer, since PyTorch's layer crops internally.
        activates: whether Keras's layer may apply an activation function to its output, which PyTorch's never does.
        bare: whether it may have no tensors, like a norm without scale and shift.
        call: the layer of Keras to write, or a function that finds the layers if the arguments need one; ``None`` for
            a container, and for modules that are not classes of ``torch.nn``.
        evident: whether a module of these classes is of this kind if the table states none.
        note: what the table of kinds in ``docs/mapping.md`` adds; kinds with the same note share a row.
    """

    name: str
    parts: tuple[Part, ...] = ()
    axes: tuple[Rule, ...] = ()
    compared: tuple[Compared, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    inner: tuple[Inner, ...] = ()
    flatten: str = ""
    index: str = ""
    padded: str = ""
    cropped: bool = False
    activates: bool = False
    bare: bool = False
    torch: tuple[TorchClass, ...] = ()
    functions: tuple[TorchFunction, ...] = ()
    keras: tuple[str, ...] = ()
    call: LayerCall | FindCounterpart | None = None
    evident: bool = True
    note: str = ""

    @property
    def flattens(self) -> bool:
        """Whether a row of this kind may state ``flatten``."""
        return bool(self.flatten) or any(part.flatten for part in self.parts)
