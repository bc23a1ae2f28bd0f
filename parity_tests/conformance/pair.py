"""What a pair states, and what Keras has no layer for: data alone, which :mod:`.engine` runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

Shape = tuple[int, ...]
State = dict[str, torch.Tensor]
Make = Callable[..., Any]
Changes = Mapping[str, Mapping[str, Any]]

OF_THE_PAIR = ("row", "state", "axes")
"""Fields of a pair that a mutant may change, by a value of the field's type; all else that it names is an argument of
``keras``."""


@dataclass(frozen=True)
class Pair:
    """A PyTorch module and the Keras layer that computes the same.

    Attributes:
        name: unique, and says what the pair is about.
        kind: the layer kind of a table's row; empty where the project has none, since there are no weights to move.
        torch: makes the module.
        keras: makes the layer; a :func:`functools.partial`, so that a mutant can change its keyword arguments.
        input: shapes of the inputs as PyTorch has them, in the order of the module's arguments.
        mutants: by what is wrong, the arguments of ``keras`` that are changed, or the fields ``row``, ``state`` or
            ``axes`` of the pair. A mutant computes something else with the same weights: its variables have the
            layer's shapes, so that the tensors fit. What leaves no place for a tensor is an :class:`Absent`.
        axes: layout of the inputs and of the output, PyTorch's to Keras's; empty where they are the same.
        out: the output's layout where it is another; "..." where it stays.
        at: where module and layer lie within what ``torch`` and ``keras`` make.
        row: more fields of the table's row.
        sizes: sizes of axes in ``out`` that no shape determines.
        below: 0, or inputs are whole numbers below this.
        scale: standard deviation of the inputs.
        state: the tensors that a checkpoint would have, if not the module's own ``state_dict``.
        one_array: whether inputs of one shape are one array, as in self-attention. Others are distinct, so that a
            layer that exchanges its inputs is found.
        channels_first: whether the Keras layer has PyTorch's layout where the outline writes channels last.
        code: arguments of ``keras`` that only a twin's code reads, such as ``widths`` of :class:`~.layers.Padded`: no
            layer states them, so that the settings check cannot name a mutant of them.
        unnamed: mutants of other arguments that the settings check does not name, each with the reason.
        in_words: why ``map outline`` describes the module instead of writing calls of layers; empty where it writes
            them, and they compute the same.
        no_outline: why the pair is no example for ``map outline``, such as a module that is not a class of
            ``torch.nn``.
        no_model: why the pair is not converted and verified as a model of one layer, such as a mask for one batch size.
    """

    name: str
    kind: str
    torch: Make
    keras: Make
    input: tuple[Shape, ...]
    mutants: Changes
    axes: str = ""
    out: str = ""
    at: tuple[str, str] = ("", "")
    row: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)
    below: int = 0
    scale: float = 1.0
    state: Callable[[torch.nn.Module], State] | None = None
    one_array: bool = False
    channels_first: bool = False
    code: tuple[str, ...] = ()
    unnamed: Mapping[str, str] = field(default_factory=dict)
    in_words: str = ""
    no_outline: str = ""
    no_model: str = ""

    @property
    def arrays(self) -> tuple[int, ...]:
        """By argument of the module, the number of its array among the distinct ones."""
        shapes = list(dict.fromkeys(self.input))
        return tuple(map(shapes.index, self.input)) if self.one_array else tuple(range(len(self.input)))

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The shapes of the distinct arrays."""
        return tuple(dict.fromkeys(self.input)) if self.one_array else self.input


@dataclass(frozen=True)
class Absent:
    """What PyTorch has and Keras does not.

    Attributes:
        name: what it is.
        reason: why, and what to do instead.
        pair: the nearest that Keras has, as a pair without mutants.
        how: ``refuses``: Keras raises an error; ``differs``: its layer computes something else; ``unplanned``: the
            tensors find no place in the layer, so that a conversion stops.
        says: a part of the error's text.
    """

    name: str
    reason: str
    pair: Pair
    how: Literal["refuses", "differs", "unplanned"]
    says: str = ""


LAST = {1: "b c l -> b l c", 2: "b c h w -> b h w c", 3: "b c d h w -> b d h w c"}
"""Channels first in PyTorch, last in Keras, by the number of spatial axes."""

SEQ: tuple[Shape, ...] = ((2, 4, 9),)
IMAGE: tuple[Shape, ...] = ((2, 4, 9, 8),)
VOLUME: tuple[Shape, ...] = ((2, 4, 5, 6, 7),)
FIRST = {"data_format": "channels_first"}
