"""A network for points in a plane with class labels, the last of which is "no class", in PyTorch and in Keras."""

from __future__ import annotations

from typing import Any

import keras
import torch
from keras import layers, ops
from torch import nn

CLASSES, WIDTH = 5, 16
TABLE = f"""format: 2
torch: labelled:Net
keras: labelled:build
inputs: ["x: b 2", "t: b, from 0 to 1", "label: b, below {CLASSES}"]
layers:
  - {{torch: first, keras: first, kind: linear}}
  - {{torch: classes, keras: classes, kind: embedding}}
  - {{torch: last, keras: last, kind: linear}}
sampling:
  process: flow
  path: linear
  target: velocity
  shape: [2]
  name: points
  classes: {CLASSES}
  no_class: {CLASSES - 1}
"""


class Net(nn.Module):
    """Points (B, 2), times (B,) and labels (B,) to velocities (B, 2)."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, WIDTH), nn.Linear(WIDTH, 2)
        self.classes = nn.Embedding(CLASSES, WIDTH)

    def forward(self, x: torch.Tensor, t: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        hidden = self.first(torch.cat([x, t[:, None]], dim=1)) + self.classes(label)
        return self.last(torch.nn.functional.silu(hidden))


def build() -> Any:
    x, t, label = keras.Input((2,), name="x"), keras.Input((), name="t"), keras.Input((), name="label", dtype="int32")
    hidden = layers.Dense(WIDTH, name="first")(ops.concatenate([x, ops.expand_dims(t, 1)], 1))
    hidden = hidden + layers.Embedding(CLASSES, WIDTH, name="classes")(label)
    return keras.Model([x, t, label], layers.Dense(2, name="last")(ops.silu(hidden)))
