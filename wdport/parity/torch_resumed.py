"""PyTorch's side of resumed training: `torch.optim` and its scheduler, from the state in the checkpoint.

Nothing of wdport computes here: the optimiser and the schedule are PyTorch's own, loaded by `load_state_dict`. Nor does
wdport's reading of a schedule choose its class: the user names it, or PyTorch's classes are asked what they store.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch.optim import lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

from wdport.conversion.optimiser import DECOUPLED, Optimised, Parameter
from wdport.errors import UsageError
from wdport.families.code import find_function
from wdport.model import Array
from wdport.optimisers.schedules import RELEASES


class TorchResumed:
    """A module, its optimiser and its schedule.

    Args:
        module: float64, with the checkpoint's weights.
        state: the optimiser as converted, for its parameters' names, groups and schedules.
        raw: torch's own state of every index, as the checkpoint has it.
        schedule: the class of the schedule, from :func:`schedule_class`; None for a constant rate.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        state: Optimised,
        raw: Mapping[int, Mapping[str, Any]],
        schedule: type | None = None,
    ) -> None:
        self.module = module
        own = dict(module.named_parameters())
        self.trained = [each for each in state.parameters if each.name in own]
        groups, described, held = [], [], {}
        place = {each.index: at for at, each in enumerate(self.trained)}
        for at, options in enumerate(state.groups):
            members = [each for each in self.trained if each.group == at]
            groups.append({**_own(options), "params": [own[each.name] for each in members]})
            described.append({**options, "params": [place[each.index] for each in members]})
        for each in self.trained:
            if each.index in raw:
                held[place[each.index]] = dict(raw[each.index])
        self.optimiser = _optimiser(state)(groups)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a param_names that the loaded state does not have
            self.optimiser.load_state_dict({"state": held, "param_groups": described})
        for group in self.optimiser.param_groups:
            group["foreach"] = group["fused"] = False
        stored = next(iter(state.schedules.values()), {})
        self.schedule: Any = None if schedule is None else _revived(schedule, stored, self.optimiser)
        self.parameters = own
        self._clipped: tuple[list[torch.nn.Parameter], float] | None = None

    @property
    def rates(self) -> list[float]:
        """The learning rate of every group."""
        return _rates(self.optimiser)

    @property
    def momenta(self) -> list[float]:
        """``betas[0]`` or ``momentum`` of every group."""
        return _momenta(self.optimiser)

    @property
    def ended(self) -> bool:
        """Whether the schedule has no further step."""
        return _ended(self.schedule)

    def backward(self, loss: torch.Tensor) -> None:
        """Compute the gradients."""
        self.module.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)

    def gradient(self, name: str) -> Array:
        """A parameter's gradient."""
        grad = self.parameters[name].grad
        return np.zeros(tuple(self.parameters[name].shape)) if grad is None else grad.numpy()

    def clip(self, names: Sequence[str], norm: float) -> None:
        """From now on, clip the gradients of these parameters to this norm before every step."""
        self._clipped = [self.parameters[name] for name in names], norm

    def step(self) -> None:
        """Update the parameters, and the schedule after them."""
        if self._clipped is not None:
            torch.nn.utils.clip_grad_norm_(*self._clipped, foreach=False)
        self.optimiser.step()
        if self.schedule is not None and not self.ended:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.schedule.step()

    def value(self, name: str) -> Array:
        """A parameter's value."""
        return self.parameters[name].detach().numpy()

    def moment(self, moment: str, name: str) -> Array | None:
        """A moment of a parameter, None if it has none."""
        found = self.optimiser.state.get(self.parameters[name], {}).get(moment)
        return None if found is None else np.asarray(found.numpy())


def _own(options: Mapping[str, Any]) -> dict[str, Any]:
    """What the optimiser's constructor takes of a group."""
    return {"lr": options["lr"]}


def _optimiser(state: Optimised) -> Any:
    if state.kind == "sgd":
        return lambda groups: torch.optim.SGD(groups, momentum=0.0)
    decoupled = all(group.get(DECOUPLED) for group in state.groups)
    return torch.optim.AdamW if decoupled else torch.optim.Adam


def _rates(optimiser: torch.optim.Optimizer) -> list[float]:
    return [float(group["lr"]) for group in optimiser.param_groups]


def _momenta(optimiser: torch.optim.Optimizer) -> list[float]:
    return [float(group["betas"][0] if "betas" in group else group["momentum"]) for group in optimiser.param_groups]


def _ended(schedule: Any) -> bool:
    total = getattr(schedule, "total_steps", None)
    return total is not None and bool(schedule.last_epoch >= total)


def rates_ahead(
    state: Optimised, schedule: type, steps: int, every: int, metrics: Sequence[float] | Array | None = None
) -> tuple[Array, Array]:
    """Learning rates and momenta (steps, G) of the next optimizer steps, as PyTorch's ``schedule`` gives them to groups
    of one parameter each; it goes on after each ``every`` of them, with a metric if it needs one."""
    optimiser = _optimiser(state)([{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": 1.0} for _ in state.groups])
    for group, options in zip(optimiser.param_groups, state.groups, strict=True):
        group.update({name: value for name, value in options.items() if name != "params"})
    moving = _revived(schedule, next(iter(state.schedules.values())), optimiser)
    rates, momenta = [], []
    for at in range(steps):
        rates.append(_rates(optimiser))
        momenta.append(_momenta(optimiser))
        if (at + 1) % every == 0 and not _ended(moving):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                moving.step(*(() if metrics is None else (float(metrics[at]),)))
    return np.array(rates), np.array(momenta)


def schedule_class(state: Optimised, named: str | None) -> type | None:
    """The class of the file's schedule: the one that is ``named`` as ``module:class``, or PyTorch's own with the stored
    fields; None for a file without a schedule.

    Raises :class:`UsageError` if no class, or several, have these fields, or if the named one is another.
    """
    if len(state.schedules) != 1:
        if named is not None:
            raise UsageError("--schedule", f"the file has {len(state.schedules)} schedules", "leave it out")
        return None
    (stored,) = state.schedules.values()
    if named is None:
        return _own_class(stored)
    found: object = find_function(named)
    if not isinstance(found, type) or not issubclass(found, LRScheduler):
        raise UsageError("--schedule", f"{named} is not a learning-rate schedule of PyTorch", "name its class")
    if found in _torch_classes() and found not in _classes_of(stored):
        raise UsageError("--schedule", f"the file's schedule does not have the fields of {found.__name__}",
                         "name the class that wrote it")  # fmt: skip
    return found


def _own_class(stored: Mapping[str, Any]) -> type:
    """PyTorch's class that stores these fields, as PyTorch itself tells; raises :class:`UsageError`."""
    found = _classes_of(stored)
    if len(found) != 1:
        which = " and of ".join(each.__name__ for each in found) or "no class of torch.optim.lr_scheduler"
        raise UsageError("--schedule", f"the file's schedule does not name its class, and has the fields of {which}",
                         "name it: --schedule MODULE:CLASS")  # fmt: skip
    return found[0]


def _torch_classes() -> list[type]:
    classes = [each for each in vars(lr_scheduler).values() if isinstance(each, type) and issubclass(each, LRScheduler)]
    return [each for each in classes if not each.__name__.endswith("LRScheduler")]


def _classes_of(stored: Mapping[str, Any]) -> list[type]:
    """PyTorch's classes whose objects store exactly these fields, except for those that depend on the release."""
    return [each for each in _torch_classes() if not (_fields(each, stored) ^ stored.keys()) - RELEASES]


def _fields(cls: Callable[..., Any], stored: Mapping[str, Any]) -> set[str]:
    """The fields that a new object of this class stores, which depend on ``cycle_momentum``."""
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], momentum=0.9)
    inner = lr_scheduler.ExponentialLR(optimiser, 1.0)
    any_value = {"lr_lambda": lambda _: 1.0, "schedulers": [inner, inner], "milestones": [1], "total_steps": 2}
    parameters = list(inspect.signature(cls).parameters.values())
    given = {each.name: any_value.get(each.name, 1) for each in parameters
             if each.default is inspect.Parameter.empty or each.name == "total_steps"}  # fmt: skip
    if any(each.name == "cycle_momentum" for each in parameters):
        given["cycle_momentum"] = stored.get("cycle_momentum", True)
    given.pop("optimizer", None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = cls(**given) if parameters[0].name == "schedulers" else cls(optimiser, **given)
    return set(made.state_dict())


def _revived(cls: type, stored: Mapping[str, Any], optimiser: torch.optim.Optimizer) -> Any:
    """An object of this class with this state, without its constructor, which would begin at the first step."""
    made: Any = object.__new__(cls)
    made.__dict__.update(optimizer=optimiser, _get_lr_called_within_step=False, _is_initial=False)
    if "_scale_fn_custom" in stored:
        made._scale_fn_custom = None
    if inner := stored.get("_schedulers", ()):
        made._schedulers = [_revived(_own_class(each), each, optimiser) for each in inner]
    made.load_state_dict(deepcopy(dict(stored)))
    return made


def raw_state(tree: Mapping[str, Any], key: str, parameters: Sequence[Parameter]) -> dict[int, dict[str, Any]]:
    """The state of every parameter in a checkpoint's contents, as torch loaded them, under the dotted ``key``."""
    value: Any = tree
    for part in key.split(".") if key else ():
        value = value[int(part) if isinstance(value, (list, tuple)) else part]
    return {each.index: dict(value["state"][each.index]) for each in parameters if each.index in value["state"]}
