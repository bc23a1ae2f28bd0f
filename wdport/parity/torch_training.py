"""PyTorch's side of training: `torch.optim` and its schedules, new or from the state in a checkpoint.

Nothing of wdport computes here: the optimizer and the schedule are PyTorch's own, loaded by `load_state_dict`. Nor does
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

from wdport.base.errors import UsageError
from wdport.conversion.optimizer_file import DECOUPLED, Optimised, Parameter
from wdport.families.user_functions import find_function
from wdport.models.interface import Array
from wdport.optimizers.schedules import RELEASES


class TorchTraining:
    """A module's parameters and PyTorch's optimizer of them, which takes steps with the gradients that they have.

    Args:
        module: float64.
        optimizer: of some of its parameters. PyTorch's plain loop runs; the others may need a GPU.
        schedule: of the optimizer's rates; None for constant rates.
        clip: norm to which the gradients of ``clipped`` are clipped before every step, by default those of all its
            parameters; None for no clipping.
        batches: how many batches' gradients one step takes the mean of.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        schedule: Any = None,
        clip: float | None = None,
        batches: int = 1,
    ) -> None:
        self.module, self.optimizer, self.schedule, self.clip = module, optimizer, schedule, clip
        for group in optimizer.param_groups:
            group["foreach"] = group["fused"] = False
        optimized = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        self.parameters = {name: value for name, value in module.named_parameters() if id(value) in optimized}
        self.clipped: Sequence[str] = list(self.parameters)
        self.batches = batches
        self._gradients: list[dict[str, torch.Tensor]] = []

    @property
    def rates(self) -> list[float]:
        """The learning rate of every group."""
        return _rates(self.optimizer)

    @property
    def momenta(self) -> list[float]:
        """``betas[0]`` or ``momentum`` of every group."""
        return _momenta(self.optimizer)

    @property
    def ended(self) -> bool:
        """Whether the schedule has no further step."""
        return _ended(self.schedule)

    def backward(self, loss: torch.Tensor) -> None:
        """Compute the gradients."""
        self.module.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)

    def gradient(self, name: str) -> Array:
        """A view of a parameter's gradient, which a step clips in place."""
        grad = self.parameters[name].grad
        return np.zeros(tuple(self.parameters[name].shape)) if grad is None else grad.numpy()

    def step(self) -> bool:
        """Update the parameters, and the schedule after them; nothing before the last of ``batches``, and return
        whether it was the last."""
        if self.batches > 1 and not self._accumulate():
            return False
        if self.clip is not None:
            torch.nn.utils.clip_grad_norm_([self.parameters[name] for name in self.clipped], self.clip, foreach=False)
        self.optimizer.step()
        self.advance()
        return True

    def _accumulate(self) -> bool:
        """Remember the gradients; after the last batch, replace them with the means, and return True."""
        gradients = {name: p.grad for name, p in self.parameters.items() if p.grad is not None}
        self._gradients.append(gradients)
        if len(self._gradients) < self.batches:
            return False
        first, *others = self._gradients
        for name, total in first.items():
            for other in others:
                total += other[name]
            self.parameters[name].grad = total.div_(self.batches)
        self._gradients = []
        return True

    def advance(self) -> None:
        """Advance the schedule alone."""
        if self.schedule is not None and not self.ended:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.schedule.step()

    def value(self, name: str) -> Array:
        """A parameter's value."""
        return self.parameters[name].detach().numpy()

    def moment(self, moment: str, name: str) -> Array | None:
        """A moment of a parameter, None if it has none."""
        array = self.optimizer.state.get(self.parameters[name], {}).get(moment)
        return None if array is None else np.asarray(array.numpy())


def resumed_training(
    module: torch.nn.Module, state: Optimised, raw: Mapping[int, Mapping[str, Any]], schedule: type | None = None
) -> TorchTraining:
    """Return a module's training from the state in a checkpoint.

    Args:
        module: float64, with the checkpoint's weights.
        state: the optimizer as converted, for its parameters' names, groups and schedules.
        raw: torch's own state of every index, as the checkpoint has it.
        schedule: the class of the schedule, from :func:`schedule_class`; None for a constant rate.
    """
    by_name = dict(module.named_parameters())
    trained = [parameter for parameter in state.parameters if parameter.name in by_name]
    groups, described, held = [], [], {}
    place = {parameter.index: position for position, parameter in enumerate(trained)}
    for index, options in enumerate(state.groups):
        members = [parameter for parameter in trained if parameter.group == index]
        groups.append({"lr": options["lr"], "params": [by_name[parameter.name] for parameter in members]})
        described.append({**options, "params": [place[parameter.index] for parameter in members]})
    for parameter in trained:
        if parameter.index in raw:
            held[place[parameter.index]] = dict(raw[parameter.index])
    optimizer = _optimizer(state)(groups)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a param_names that the loaded state does not have
        optimizer.load_state_dict({"state": held, "param_groups": described})
    stored = next(iter(state.schedules.values()), {})
    return TorchTraining(module, optimizer, None if schedule is None else _revived(schedule, stored, optimizer))


def _optimizer(state: Optimised) -> Any:
    if state.kind == "sgd":
        return lambda groups: torch.optim.SGD(groups, momentum=0.0)
    decoupled = all(group.get(DECOUPLED) for group in state.groups)
    return torch.optim.AdamW if decoupled else torch.optim.Adam


def _rates(optimizer: torch.optim.Optimizer) -> list[float]:
    return [float(group["lr"]) for group in optimizer.param_groups]


def _momenta(optimizer: torch.optim.Optimizer) -> list[float]:
    return [float(group["betas"][0] if "betas" in group else group["momentum"]) for group in optimizer.param_groups]


def _ended(schedule: Any) -> bool:
    total = getattr(schedule, "total_steps", None)
    return total is not None and bool(schedule.last_epoch >= total)


def rates_ahead(
    state: Optimised, schedule: type, steps: int, every: int, metrics: Sequence[float] | Array | None = None
) -> tuple[Array, Array]:
    """Learning rates and momenta (steps, G) of the next optimizer steps, as PyTorch's ``schedule`` gives them to groups
    of one parameter each; the schedule steps once every ``every`` of them, with a metric if it needs one."""
    optimizer = _optimizer(state)([{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": 1.0} for _ in state.groups])
    for group, options in zip(optimizer.param_groups, state.groups, strict=True):
        group.update({name: value for name, value in options.items() if name != "params"})
    moving = _revived(schedule, next(iter(state.schedules.values())), optimizer)
    rates, momenta = [], []
    for step in range(steps):
        rates.append(_rates(optimizer))
        momenta.append(_momenta(optimizer))
        if (step + 1) % every == 0 and not _ended(moving):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                moving.step(*(() if metrics is None else (float(metrics[step]),)))
    return np.array(rates), np.array(momenta)


def schedule_class(state: Optimised, named: str | None) -> type | None:
    """The class of the file's schedule: the one that is ``named`` as ``module:class``, or PyTorch's own with the stored
    fields; None for a file without a schedule.

    Raises :class:`UsageError` if no class, or several, have these fields, or if the named one is another.
    """
    if len(state.schedules) != 1:
        if named is not None:
            raise UsageError("--schedule-class", f"the file has {len(state.schedules)} schedules", "leave it out")
        return None
    (stored,) = state.schedules.values()
    if named is None:
        return _own_class(stored)
    cls: object = find_function(named)
    if not isinstance(cls, type) or not issubclass(cls, LRScheduler):
        raise UsageError("--schedule-class", f"{named} is not a learning-rate schedule of PyTorch", "name its class")
    if cls in _torch_classes() and cls not in _classes_of(stored):
        raise UsageError("--schedule-class", f"the file's schedule does not have the fields of {cls.__name__}",
                         "name the class that wrote it")  # fmt: skip
    return cls


def _own_class(stored: Mapping[str, Any]) -> type:
    """PyTorch's class that stores these fields, found among PyTorch's own classes; raises :class:`UsageError`."""
    classes = _classes_of(stored)
    if len(classes) != 1:
        which = " and of ".join(cls.__name__ for cls in classes) or "no class of torch.optim.lr_scheduler"
        what = f"the file's schedule does not name its class, and has the fields of {which}"
        raise UsageError("--schedule-class", what, "name it: `--schedule-class MODULE:CLASS`")
    return classes[0]


def _torch_classes() -> list[type]:
    classes = [cls for cls in vars(lr_scheduler).values() if isinstance(cls, type) and issubclass(cls, LRScheduler)]
    # The base class has two names, one of them with an underscore.
    return [cls for cls in classes if not cls.__name__.endswith("LRScheduler")]


def _classes_of(stored: Mapping[str, Any]) -> list[type]:
    """PyTorch's classes whose objects store exactly these fields, except for those that depend on the release."""
    return [cls for cls in _torch_classes() if not (_fields(cls, stored) ^ stored.keys()) - RELEASES]


def _fields(cls: Callable[..., Any], stored: Mapping[str, Any]) -> set[str]:
    """The fields that a new object of this class stores, which depend on ``cycle_momentum``."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], momentum=0.9)
    inner = lr_scheduler.ExponentialLR(optimizer, 1.0)
    # Any valid values: only the names of the stored fields matter.
    any_value = {"lr_lambda": lambda _: 1.0, "schedulers": [inner, inner], "milestones": [1], "total_steps": 2}
    parameters = list(inspect.signature(cls).parameters.values())
    arguments = {parameter.name: any_value.get(parameter.name, 1) for parameter in parameters
                 if parameter.default is inspect.Parameter.empty or parameter.name == "total_steps"}  # fmt: skip
    if any(parameter.name == "cycle_momentum" for parameter in parameters):
        arguments["cycle_momentum"] = stored.get("cycle_momentum", True)
    arguments.pop("optimizer", None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        schedule = cls(**arguments) if parameters[0].name == "schedulers" else cls(optimizer, **arguments)
    return set(schedule.state_dict())


def _revived(cls: type, stored: Mapping[str, Any], optimizer: torch.optim.Optimizer) -> Any:
    """An object of this class with this state, without its constructor, which would begin at the first step."""
    schedule: Any = object.__new__(cls)
    schedule.__dict__.update(optimizer=optimizer, _get_lr_called_within_step=False, _is_initial=False)
    if "_scale_fn_custom" in stored:
        schedule._scale_fn_custom = None
    if inner := stored.get("_schedulers", ()):
        schedule._schedulers = [_revived(_own_class(state), state, optimizer) for state in inner]
    # A copy: the schedule keeps the lists that it is given, and SequentialLR takes an entry out while it loads.
    schedule.load_state_dict(deepcopy(dict(stored)))
    return schedule


def raw_state(tree: Mapping[str, Any], key: str, parameters: Sequence[Parameter]) -> dict[int, dict[str, Any]]:
    """The state of every parameter in a checkpoint's contents, as torch loaded them, under the dotted ``key``."""
    value: Any = tree
    for part in key.split(".") if key else ():
        value = value[int(part) if isinstance(value, (list, tuple)) else part]
    indices = (parameter.index for parameter in parameters)
    return {index: dict(value["state"][index]) for index in indices if index in value["state"]}
