"""The PyTorch model, with the names of its checkpoints."""

from __future__ import annotations

import torch
from torch import nn

ACTIVATIONS = {"relu": nn.ReLU, "tanh": nn.Tanh, "silu": nn.SiLU}


class Perceptron(nn.Module):
    """Maps x (B, inputs) to (B, outputs)."""

    def __init__(self, config):
        super().__init__()
        self.fc1 = nn.Linear(config.inputs, config.hidden)
        self.act = ACTIVATIONS[config.activation]()
        self.fc2 = nn.Linear(config.hidden, config.outputs)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


def build_reference(config, tensors, dtype):
    """The model in evaluation mode with the weights of a checkpoint."""
    model = Perceptron(config)
    model.load_state_dict({name: torch.from_numpy(array) for name, array in tensors.items()})
    return model.to(getattr(torch, dtype)).eval()
