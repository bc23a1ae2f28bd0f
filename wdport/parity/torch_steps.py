"""PyTorch's training steps, split up: after the gradients, one parameter at a time takes its step.

AdamW updates every parameter independently, so each has a separate optimiser here; nothing is stored twice.
"""

from __future__ import annotations

import numpy as np
import torch

from wdport.model import Array, Batch, Objective


class TorchTraining:
    """Training of one module from zero moments: PyTorch's clipping by norm, `AdamW` and `OneCycleLR`."""

    def __init__(self, module: torch.nn.Module, objective: Objective, clip: float, cycle: int) -> None:
        self.module, self.objective, self.clip = module, objective, clip
        self.parameters = dict(module.named_parameters())
        self._optimizers = {name: torch.optim.AdamW([p], foreach=False) for name, p in self.parameters.items()}
        self._loss: torch.Tensor
        self._clock = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])
        self._schedule = torch.optim.lr_scheduler.OneCycleLR(self._clock, max_lr=1e-3, total_steps=cycle)

    @property
    def rate(self) -> float:
        """The learning rate of the current step."""
        return float(self._clock.param_groups[0]["lr"])

    def forward(self, batch: Batch) -> tuple[float, Array]:
        """Compute loss and prediction, and reset the gradients."""
        self.module.zero_grad(set_to_none=True)
        loss, prediction = self.objective.reference_loss(self.module, batch)
        self._loss = loss
        return loss.item(), prediction.detach().numpy()

    def backward(self) -> None:
        """Compute the gradients, which are stored in the parameters."""
        torch.autograd.backward(self._loss)
        del self._loss  # and the graph with it
        for parameter in self.parameters.values():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)

    def gradient(self, name: str) -> Array:
        """A view of a parameter's gradient, unclipped until the parameter takes its step."""
        grad = self.parameters[name].grad
        return np.zeros(()) if grad is None else grad.numpy()

    def state(self, name: str) -> tuple[Array, Array, Array]:
        """Views of a parameter's value and its two moments."""
        parameter = self.parameters[name]
        state = self._optimizers[name].state.get(parameter, {})
        moments = (state.get(key, torch.zeros_like(parameter)) for key in ("exp_avg", "exp_avg_sq"))
        value, first, second = (tensor.detach().numpy() for tensor in (parameter, *moments))
        return value, first, second

    def measure_norm(self) -> None:
        """Compute the global gradient norm for clipping; call it before the first parameter takes its step."""
        gradients = [p.grad for p in self.parameters.values() if p.grad is not None]
        self._norm = torch.nn.utils.get_total_norm(gradients, foreach=False)

    def step(self, name: str) -> None:
        """Clip one parameter's gradient and update the parameter."""
        parameter = self.parameters[name]
        torch.nn.utils.clip_grads_with_norm_([parameter], self.clip, self._norm, foreach=False)
        group, clock = self._optimizers[name].param_groups[0], self._clock.param_groups[0]
        group["lr"], group["betas"] = clock["lr"], clock["betas"]
        self._optimizers[name].step()

    def next_rate(self) -> None:
        """Advance the learning rate to the next step."""
        self._clock.step()
        self._schedule.step()
