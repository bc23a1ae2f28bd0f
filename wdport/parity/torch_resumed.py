"""PyTorch's side of resumed training: `torch.optim` and its scheduler, from the state in the checkpoint.

Nothing of wdport computes here: the optimiser and the schedule are PyTorch's own, loaded by `load_state_dict`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from wdport.conversion.optimiser import DECOUPLED, Optimised, Parameter
from wdport.model import Array
from wdport.optimisers.schedules import kind_of


class TorchResumed:
    """A module, its optimiser and its schedule.

    Args:
        module: float64, with the checkpoint's weights.
        state: the optimiser as converted, for its parameters' names, groups and schedules.
        raw: torch's own state of every index, as the checkpoint has it.
    """

    def __init__(self, module: torch.nn.Module, state: Optimised, raw: Mapping[int, Mapping[str, Any]]) -> None:
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
        self.schedule = _schedule(state, self.optimiser)
        self.parameters = own

    @property
    def rates(self) -> list[float]:
        """The learning rate of every group."""
        return [float(group["lr"]) for group in self.optimiser.param_groups]

    @property
    def momenta(self) -> list[float]:
        """``betas[0]`` or ``momentum`` of every group."""
        return [float(group["betas"][0] if "betas" in group else group["momentum"])
                for group in self.optimiser.param_groups]  # fmt: skip

    @property
    def ended(self) -> bool:
        """Whether the schedule has no further step."""
        total = getattr(self.schedule, "total_steps", None)
        return total is not None and bool(self.schedule.last_epoch >= total)

    def backward(self, loss: torch.Tensor) -> None:
        """Compute the gradients."""
        self.module.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)

    def gradient(self, name: str) -> Array:
        """A parameter's gradient."""
        grad = self.parameters[name].grad
        return np.zeros(tuple(self.parameters[name].shape)) if grad is None else grad.numpy()

    def step(self) -> None:
        """Update the parameters, and the schedule after them."""
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


def _schedule(state: Optimised, optimiser: torch.optim.Optimizer) -> Any:
    """PyTorch's schedule at the stored position, None if the file has none that steps by itself."""
    if len(state.schedules) != 1:
        return None
    (stored,) = state.schedules.values()
    return None if kind_of(stored) in ("", "ReduceLROnPlateau", "LambdaLR") else _revived(stored, optimiser)


def _revived(stored: Mapping[str, Any], optimiser: torch.optim.Optimizer) -> Any:
    """An object of PyTorch's class with this state, without its constructor, which would begin at the first step."""
    cls: Any = getattr(torch.optim.lr_scheduler, kind_of(dict(stored)))
    made = cls.__new__(cls)
    inner: Sequence[Mapping[str, Any]] = stored.get("_schedulers", ())
    made.__dict__.update({key: value for key, value in stored.items() if key != "_schedulers"})
    made.__dict__.setdefault("_get_lr_called_within_step", False)
    made.__dict__.setdefault("_is_initial", False)
    made.optimizer = optimiser
    if inner:
        made._schedulers = [_revived(each, optimiser) for each in inner]
    return made


def raw_state(tree: Mapping[str, Any], key: str, parameters: Sequence[Parameter]) -> dict[int, dict[str, Any]]:
    """The state of every parameter in a checkpoint's contents, as torch loaded them, under the dotted ``key``."""
    value: Any = tree
    for part in key.split(".") if key else ():
        value = value[int(part) if isinstance(value, (list, tuple)) else part]
    return {each.index: dict(value["state"][each.index]) for each in parameters if each.index in value["state"]}
