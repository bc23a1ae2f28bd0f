"""PyTorch's learning-rate schedules, resumed from their stored state: one learning rate and one beta1 per step.

The stored state of a schedule contains its settings and its position, so it *is* the schedule: a step maps it, with the
groups' hyper-parameters, to the next one. Everything is computed in Python's float64 by torch's own recurrences, so
rates are equal in every bit. The rates of the steps to come are an array, from which a compiled training step reads.

Source: `torch.optim.lr_scheduler` of PyTorch 2.13.
"""

from __future__ import annotations

import copy
import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wdport.base.errors import UsageError


class Rates(NamedTuple):
    """Learning rate and first-moment decay of every optimizer step, (S,) each, float64."""

    rate: NDArray[np.float64]
    beta1: NDArray[np.float64]


def cosine_rate(steps: int, largest: float = 1e-3, warm_up: int = 0, beta1: float = 0.9) -> Rates:
    """Return rates that rise linearly to ``largest`` in ``warm_up`` steps, then fall to 0 along a half cosine
    (Loshchilov and Hutter, arXiv 1608.03983), which they would reach after the last step.

    Raises :class:`UsageError` if the warm-up has as many steps as there are.
    """
    if not 0 <= warm_up < steps:
        raise UsageError("warm_up", f"is {warm_up} of {steps} steps", "give fewer")
    index = np.arange(steps, dtype=np.float64)
    # Counted from 1, so that no step has a rate of 0.
    rising = (index + 1.0) / (warm_up + 1.0)
    falling = (1.0 + np.cos(np.pi * (index - warm_up) / (steps - warm_up))) / 2.0
    return Rates(largest * np.where(index < warm_up, rising, falling), np.full(steps, beta1))


def warmup_cosine(epochs: int, steps: int, largest: float, warm_up: int, least: float = 1e-6) -> Rates:
    """Rates that change after every epoch of ``steps``: they rise linearly to ``largest`` in ``warm_up`` epochs, then
    fall along a half cosine, as `torch.optim.lr_scheduler.LambdaLR` with such a function; ``least`` is where it ends.

    Raises :class:`UsageError` if the warm-up has as many epochs as there are.
    """
    if not 0 <= warm_up < epochs:
        raise UsageError("warmup_epochs", f"is {warm_up} of {epochs} epochs", "give fewer, or train longer")
    index = np.arange(epochs, dtype=np.float64)
    # A LambdaLR's function returns factors of the largest rate, so the least one is divided by it.
    low = least / largest
    falling = low + (1.0 - low) * (1.0 + np.cos(np.pi * (index - warm_up) / (epochs - warm_up))) / 2.0
    factors = np.where(index < warm_up, (index + 1.0) / max(warm_up, 1), falling)
    return Rates(np.repeat(largest * factors, steps), np.full(epochs * steps, 0.9))


def one_cycle(
    steps: int,
    largest: float = 1e-3,
    warm_up: float = 0.3,
    divisor: float = 25.0,
    final_divisor: float = 1e4,
    beta1: tuple[float, float] = (0.85, 0.95),
) -> Rates:
    """Smith and Topin's one-cycle schedule (arXiv 1708.07120) as `torch.optim.lr_scheduler.OneCycleLR` computes it,
    with cosines.

    The rate rises from ``largest / divisor`` to ``largest`` over the fraction ``warm_up`` of the steps, then falls to
    ``largest / divisor / final_divisor``; beta1 moves in the opposite direction between the two given values.
    Raises :class:`UsageError` if the warm-up or the descent would have no step.
    """
    # torch's first phase ends at this step, which need not be a whole number.
    top = warm_up * steps - 1.0
    if not 0.0 < top < steps - 1.0:
        raise UsageError("one_cycle", f"a warm-up of {warm_up:g} of {steps} steps", "give more steps")
    index = np.arange(steps, dtype=np.float64)
    low, (least, largest_beta) = largest / divisor, beta1
    rising = index <= top
    share = np.where(rising, index / top, (index - top) / (steps - 1.0 - top))
    wave = (1.0 + np.cos(np.pi * share)) / 2.0

    def between(start: float, middle: float, end: float) -> NDArray[np.float64]:
        first, last = np.where(rising, start, middle), np.where(rising, middle, end)
        return np.asarray(last + (first - last) * wave)

    return Rates(between(low, largest, low / final_divisor), between(largest_beta, least, largest_beta))


Values = dict[str, Any]
"""The state of a schedule, or the hyper-parameters of a group, by torch's names."""

_EACH: Final = ("base_lrs", "last_epoch", "_last_lr")
_MOMENTA: Final = ("use_beta1", "base_momentums", "max_momentums")

RELEASES: Final = frozenset({"verbose", "_step_count", "_is_initial", "_get_lr_called_within_step", "default_min_lr"})
"""Fields that some releases of PyTorch store and others do not, which do not identify a class."""

_FIELDS: Final[Mapping[str, tuple[frozenset[str], frozenset[str]]]] = {
    name: (frozenset(needed), frozenset(others))
    for name, needed, others in (
        ("OneCycleLR", (*_EACH, "total_steps", "_schedule_phases", "_anneal_func_type", "cycle_momentum"),
         _MOMENTA[:1]),
        ("CosineAnnealingLR", (*_EACH, "T_max", "eta_min"), ()),
        ("CosineAnnealingWarmRestarts", (*_EACH, "T_0", "T_i", "T_mult", "T_cur", "eta_min"), ()),
        ("CyclicLR", (*_EACH, "max_lrs", "total_size", "step_ratio", "mode", "gamma", "scale_mode", "cycle_momentum",
                      "_scale_fn_custom"), _MOMENTA),
        ("SequentialLR", ("last_epoch", "_last_lr", "_schedulers", "_milestones"), ()),
        ("ChainedScheduler", ("_last_lr", "_schedulers"), ()),
        ("ReduceLROnPlateau", ("last_epoch", "factor", "min_lrs", "patience", "cooldown", "cooldown_counter", "eps",
                               "mode", "mode_worse", "threshold", "threshold_mode", "best", "num_bad_epochs"),
         _EACH[-1:]),
        ("LinearLR", (*_EACH, "start_factor", "end_factor", "total_iters"), ()),
        ("ConstantLR", (*_EACH, "factor", "total_iters"), ()),
        ("PolynomialLR", (*_EACH, "power", "total_iters"), ()),
        ("StepLR", (*_EACH, "step_size", "gamma"), ()),
        ("MultiStepLR", (*_EACH, "milestones", "gamma"), ()),
        ("LambdaLR", (*_EACH, "lr_lambdas"), ()),
        ("ExponentialLR", (*_EACH, "gamma"), ()),
    )
}  # fmt: skip
"""All fields of a class: those that it always stores, and those that it may store. A MultiplicativeLR stores what a
LambdaLR stores."""

_REFUSED: Final[Mapping[str, str]] = {
    "LambdaLR": "is a function of the training program, which the file does not contain",
    **dict.fromkeys(("CyclicLR", "CosineAnnealingWarmRestarts", "ChainedScheduler"), "is not implemented"),
}

_CLOSE: Final = 1e-6
"""How far a stored rate is at most from its closed form, relative to the base rate."""


def kind_of(state: Values) -> str:
    """Return the class that wrote a schedule's state, by the whole set of its fields; "" if it is not known."""
    fields = state.keys() - RELEASES
    return next((name for name, (needed, others) in _FIELDS.items() if needed <= fields <= needed | others), "")


class Schedule:
    """A schedule and the groups that it changes.

    Args:
        state: the schedule's stored state; it is copied.
        groups: the groups' hyper-parameters, also copied; :attr:`groups` holds the current ones.

    Raises:
        UsageError: the schedule is a function of the training program, belongs to a class that is unknown or not
            implemented, or has a stored rate that does not match the class identified by its fields.
    """

    def __init__(self, state: Mapping[str, Any], groups: Sequence[Mapping[str, Any]]) -> None:
        self.state: Values = copy.deepcopy(dict(state))
        self.groups: list[Values] = [copy.deepcopy(dict(group)) for group in groups]
        self.kind = _require_known(self.state)

    @property
    def needs_metric(self) -> bool:
        """Whether a step depends on a measured value."""
        return self.kind == "ReduceLROnPlateau"

    @property
    def rates(self) -> list[float]:
        """The current learning rate of every group."""
        return [float(group["lr"]) for group in self.groups]

    @property
    def momenta(self) -> list[float]:
        """The current ``betas[0]`` or ``momentum`` of every group."""
        return [float(group["betas"][0] if "betas" in group else group.get("momentum", 0.0)) for group in self.groups]

    @property
    def left(self) -> int | None:
        """Steps that the schedule has left; None for one without an end."""
        return int(self.state["total_steps"] - self.state["last_epoch"]) if self.kind == "OneCycleLR" else None

    def step(self, metric: float | None = None) -> None:
        """Advance by one step; ``metric`` is the value that ``ReduceLROnPlateau`` watches."""
        if self.needs_metric:
            if metric is None:
                raise UsageError("metric", "is needed by ReduceLROnPlateau", "give the watched value")
            _plateau(self.state, self.groups, float(metric))
        elif self.kind == "SequentialLR":
            _sequence(self.state, self.groups)
        else:
            self.state["_step_count"] = self.state.get("_step_count", 0) + 1
            _step(self.state, self.groups)
        self.state["_last_lr"] = [group["lr"] for group in self.groups]

    def ahead(self, steps: int, every: int = 1) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return learning rates and momenta (steps, G) of the next optimizer steps; the schedule does not advance.

        The schedule advances once every ``every`` of them.
        """
        walker = Schedule(self.state, self.groups)
        rates, momenta = [], []
        for index in range(steps):
            rates.append(walker.rates)
            momenta.append(walker.momenta)
            if (index + 1) % every == 0 and index + 1 < steps and walker.left != 0:
                walker.step()
        return np.array(rates), np.array(momenta)


def _require_known(state: Values, inner: bool = False) -> str:
    kind = kind_of(state)
    fix = "give the learning rates of the steps to come as an array"
    if kind in _REFUSED:
        raise UsageError("MultiplicativeLR or LambdaLR" if kind == "LambdaLR" else kind, _REFUSED[kind], fix)
    if not kind:
        raise UsageError("the schedule", f"with {', '.join(sorted(state)[:4])} is of an unknown class", fix)
    for inner_state in state["_schedulers"] if kind == "SequentialLR" else ():
        _require_known(inner_state, inner=True)
    # A class of the user's own may store the same fields, but has other rates.
    if kind in _CLOSED and not inner:
        for base, rate in zip(state["base_lrs"], state["_last_lr"], strict=True):
            usual = _CLOSED[kind](state, base)
            if not abs(rate - usual) <= _CLOSE * abs(base):
                what = f"has the fields of {kind}, but at {state['last_epoch']} the rate {rate:.6g} and not {usual:.6g}"
                raise UsageError("the schedule", what, fix)
    return kind


def _step(state: Values, groups: list[Values], epoch: int | None = None) -> None:
    """Advance by one step, or to ``epoch`` by the closed form, as torch does at a milestone of a sequence."""
    kind = kind_of(state)
    state["last_epoch"] = state["last_epoch"] + 1 if epoch is None else epoch
    if epoch is not None and kind in _CLOSED:
        rates = [_CLOSED[kind](state, base) for base in state["base_lrs"]]
    else:
        rates = [_NEXT[kind](state, group, index) for index, group in enumerate(groups)]
    for group, rate in zip(groups, rates, strict=True):
        group["lr"] = rate
    state["_last_lr"] = rates


def _sequence(state: Values, groups: list[Values]) -> None:
    state["last_epoch"] += 1
    index = bisect_right(state["_milestones"], state["last_epoch"])
    inner = state["_schedulers"][index]
    begins = index > 0 and state["_milestones"][index - 1] == state["last_epoch"]
    if not begins:
        inner["_step_count"] = inner.get("_step_count", 0) + 1
    _step(inner, groups, 0 if begins else None)


def _one_cycle(state: Values, group: Values, index: int) -> float:
    step, start = state["last_epoch"], 0.0
    if step > state["total_steps"]:
        raise UsageError("OneCycleLR", f"ends after {state['total_steps']} steps", "train no longer")
    phases = state["_schedule_phases"]
    for phase in phases[:-1]:
        if step <= phase["end_step"]:
            break
        start = phase["end_step"]
    else:
        phase = phases[-1]
    share = (step - start) / (phase["end_step"] - start)

    def between(first: float, last: float) -> float:
        if state.get("_anneal_func_type", "cos") == "linear":
            return float((last - first) * share + first)
        return float(last + (first - last) / 2.0 * (math.cos(math.pi * share) + 1))

    if state["cycle_momentum"]:
        momentum = between(group[phase["start_momentum"]], group[phase["end_momentum"]])
        if state.get("use_beta1"):
            group["betas"] = (momentum, *group["betas"][1:])
        else:
            group["momentum"] = momentum
    return between(group[phase["start_lr"]], group[phase["end_lr"]])


def _cosine(state: Values, group: Values, index: int) -> float:
    step, half, least = state["last_epoch"], state["T_max"], state["eta_min"]
    rate = float(group["lr"])
    if step == 0:
        return rate
    # torch's own case for a schedule that was created in the middle of a run and has not taken a step.
    if state.get("_step_count") == 1 and step > 0:
        return _closed_cosine_started(state, state["base_lrs"][index])
    # One step after the minimum the recurrence would divide by zero; torch computes this step from the base rate.
    if (step - 1 - half) % (2 * half) == 0:
        return rate + float(state["base_lrs"][index] - least) * (1 - math.cos(math.pi / half)) / 2
    now, before = (1 + math.cos(math.pi * position / half) for position in (step, step - 1))
    return float(now / before * (rate - least) + least)


def _closed_cosine_started(state: Values, base: float) -> float:
    # Not the order of _closed_cosine: torch has the product both ways, and the angles may differ in the last bit.
    angle = state["last_epoch"] * math.pi / state["T_max"]
    return float(state["eta_min"] + (base - state["eta_min"]) * (1 + math.cos(angle)) / 2)


def _closed_cosine(state: Values, base: float) -> float:
    angle = math.pi * state["last_epoch"] / state["T_max"]
    return float(state["eta_min"] + (base - state["eta_min"]) * (1 + math.cos(angle)) / 2)


def _linear(state: Values, group: Values, index: int) -> float:
    step, first, last, steps = state["last_epoch"], state["start_factor"], state["end_factor"], state["total_iters"]
    if step == 0:
        return float(group["lr"] * first)
    if step > steps:
        return float(group["lr"])
    return float(group["lr"] * (1.0 + (last - first) / (steps * first + (step - 1) * (last - first))))


def _closed_linear(state: Values, base: float) -> float:
    first, last, steps = state["start_factor"], state["end_factor"], state["total_iters"]
    return float(base * (first + (last - first) * min(steps, state["last_epoch"]) / steps))


def _constant(state: Values, group: Values, index: int) -> float:
    if state["last_epoch"] == 0:
        return float(group["lr"] * state["factor"])
    return float(group["lr"] * (1.0 / state["factor"]) if state["last_epoch"] == state["total_iters"] else group["lr"])


def _closed_constant(state: Values, base: float) -> float:
    return float(base * (state["factor"] + (state["last_epoch"] >= state["total_iters"]) * (1 - state["factor"])))


def _polynomial(state: Values, group: Values, index: int) -> float:
    step, steps = state["last_epoch"], state["total_iters"]
    if step == 0 or step > steps:
        return float(group["lr"])
    return float(group["lr"] * ((1.0 - step / steps) / (1.0 - (step - 1) / steps)) ** state["power"])


def _closed_polynomial(state: Values, base: float) -> float:
    steps = state["total_iters"]
    return float(base * (1.0 - min(steps, state["last_epoch"]) / steps) ** state["power"])


def _stairs(state: Values, group: Values, index: int) -> float:
    if state["last_epoch"] == 0 or state["last_epoch"] % state["step_size"] != 0:
        return float(group["lr"])
    return float(group["lr"] * state["gamma"])


def _closed_stairs(state: Values, base: float) -> float:
    return float(base * state["gamma"] ** (state["last_epoch"] // state["step_size"]))


def _milestones(state: Values, group: Values, index: int) -> float:
    count = state["milestones"].get(state["last_epoch"], 0)
    return float(group["lr"] * state["gamma"] ** count if count else group["lr"])


def _closed_milestones(state: Values, base: float) -> float:
    every = sorted(milestone for milestone, count in state["milestones"].items() for _ in range(count))
    return float(base * state["gamma"] ** bisect_right(every, state["last_epoch"]))


def _exponential(state: Values, group: Values, index: int) -> float:
    return float(group["lr"] * state["gamma"]) if state["last_epoch"] else float(group["lr"])


def _closed_exponential(state: Values, base: float) -> float:
    return float(base * state["gamma"] ** state["last_epoch"])


_NEXT: Final[Mapping[str, Callable[[Values, Values, int], float]]] = {
    "OneCycleLR": _one_cycle,
    "CosineAnnealingLR": _cosine,
    "LinearLR": _linear,
    "ConstantLR": _constant,
    "PolynomialLR": _polynomial,
    "StepLR": _stairs,
    "MultiStepLR": _milestones,
    "ExponentialLR": _exponential,
}

_CLOSED: Final[Mapping[str, Callable[[Values, float], float]]] = {
    "CosineAnnealingLR": _closed_cosine,
    "LinearLR": _closed_linear,
    "ConstantLR": _closed_constant,
    "PolynomialLR": _closed_polynomial,
    "StepLR": _closed_stairs,
    "MultiStepLR": _closed_milestones,
    "ExponentialLR": _closed_exponential,
}


def _plateau(state: Values, groups: list[Values], metric: float) -> None:
    state["last_epoch"] += 1
    least = state["mode"] == "min"
    margin = state["threshold"] * (-1.0 if least else 1.0)
    bound = state["best"] * (1.0 + margin) if state["threshold_mode"] == "rel" else state["best"] + margin
    if metric < bound if least else metric > bound:
        state["best"], state["num_bad_epochs"] = metric, 0
    else:
        state["num_bad_epochs"] += 1
    if state["cooldown_counter"] > 0:
        state["cooldown_counter"] -= 1
        state["num_bad_epochs"] = 0
    if state["num_bad_epochs"] > state["patience"]:
        for group, bottom in zip(groups, state["min_lrs"], strict=True):
            lower = max(float(group["lr"]) * state["factor"], bottom)
            if float(group["lr"]) - lower > state["eps"]:
                group["lr"] = lower
        state["cooldown_counter"], state["num_bad_epochs"] = state["cooldown"], 0
