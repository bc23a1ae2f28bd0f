"""Complex buffers, which no row converts, and which the table drops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import torch
from keras import layers, ops
from safetensors.torch import save_file
from torch import nn

import wdport
from wdport.base.errors import InputError
from wdport.checkpoint import open_checkpoint

TABLE = """\
format: 2
inputs: ["x: b 5 6"]
layers: [{torch: fc, keras: fc, kind: linear}]
"""
DROP = "tensors: [{torch: turns, drop: the port computes it}]\n"
ANGLES = np.outer(np.arange(5.0), 100.0 ** -(np.arange(3) / 3.0))


class Turning(nn.Module):
    """Rotates pairs of features by complex factors that it keeps in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc = nn.Linear(6, 6)
        angles = torch.outer(torch.arange(5.0), 100.0 ** -(torch.arange(3) / 3.0))
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pairs = torch.view_as_complex(self.fc(x).unflatten(-1, (3, 2)))
        return torch.view_as_real(pairs * self.turns).flatten(-2)


class Turn(layers.Layer):
    def call(self, x: Any) -> Any:
        cos, sin = (ops.cast(values, x.dtype) for values in (np.cos(ANGLES), np.sin(ANGLES)))
        a, b = x[..., 0::2], x[..., 1::2]
        return ops.reshape(ops.stack([a * cos - b * sin, a * sin + b * cos], -1), ops.shape(x))


def port() -> Any:
    x = keras.Input((5, 6))
    return keras.Model(x, Turn(name="turn")(layers.Dense(6, name="fc")(x)))


@pytest.mark.parametrize("name", ["m.pt", "m.safetensors"])
def test_a_complex_buffer_is_dropped(tmp_path: Path, name: str) -> None:
    checkpoint, mapping, state = tmp_path / name, tmp_path / "t.yaml", Turning().state_dict()
    save_file(state, checkpoint) if name.endswith("s") else torch.save(state, checkpoint)
    with open_checkpoint(checkpoint) as opened:
        assert opened.tensors["turns"].dtype == "complex64"
        assert np.array_equal(opened.read("turns"), state["turns"].numpy())
    mapping.write_text(TABLE)
    with pytest.raises(InputError, match=r"turns: has dtype complex64, which no row converts; drop it .*view_as_real"):
        wdport.convert(checkpoint, mapping=mapping, model=f"{__name__}:port")
    mapping.write_text(TABLE + DROP)
    output = wdport.convert(checkpoint, mapping=mapping, model=f"{__name__}:port").output
    if name == "m.pt":
        reference = f"{__name__}:Turning"
        assert wdport.verify(checkpoint, output, mapping=mapping, model=f"{__name__}:port", reference=reference)
