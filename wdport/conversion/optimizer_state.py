"""The state of an optimizer: torch's names for it, and its arrays by the variables of the Keras model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from wdport.model import Array

Kind = str
"""``"adam"`` or ``"sgd"``."""

Groups = tuple[dict[str, Any], ...]
"""The hyper-parameters of every group, by torch's names."""

MOMENTS: Final[Mapping[Kind, tuple[str, ...]]] = {
    "adam": ("exp_avg", "exp_avg_sq", "max_exp_avg_sq"),
    "sgd": ("momentum_buffer",),
}
"""The arrays of each parameter's state, by torch's names."""

SETTINGS: Final[Mapping[Kind, tuple[str, ...]]] = {
    "adam": ("lr", "betas", "eps", "weight_decay", "amsgrad", "maximize"),
    "sgd": ("lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize"),
}
"""Hyper-parameters that a group must have."""

DECOUPLED: Final = "decoupled_weight_decay"
WITHOUT_EFFECT: Final = frozenset({"foreach", "fused", "capturable", "differentiable", "name", "initial_lr", "max_lr",
                                   "min_lr", "swa_lr", "base_momentum", "max_momentum"})  # fmt: skip
"""Further options that a group may have: they change how torch computes and not what, or schedules keep them there."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of the torch optimizer: index, name, group, and the names of its state's entries in their order.

    ``step`` is its number of steps and ``step_dtype`` the dtype of the tensor that holds it, "" for a Python number;
    ``dtype`` is that of its moments.
    """

    index: int
    name: str
    group: int
    entries: tuple[str, ...] = ()
    step: float | None = None
    step_dtype: str = ""
    dtype: str = "float32"


@dataclass(frozen=True)
class Optimised:
    """The state of an optimizer for the Keras model.

    ``moments`` maps torch's name of a moment to arrays by variable path; ``groups`` are torch's hyper-parameters of the
    groups, ``members`` the group of every variable, ``steps`` the number of steps of every variable with a state.
    ``schedules`` are the stored states of learning-rate schedules by their keys, ``extra`` the checkpoint's other
    numbers, such as the epoch; ``left_out`` are parameters whose tensors the conversion dropped.
    """

    kind: Kind
    groups: Groups
    members: Mapping[str, int]
    steps: Mapping[str, int]
    moments: Mapping[str, Mapping[str, Array]]
    schedules: Mapping[str, dict[str, Any]]
    parameters: tuple[Parameter, ...]
    key: str = ""
    left_out: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def step(self) -> int:
        """The largest number of steps of any variable."""
        return max(self.steps.values(), default=0)
