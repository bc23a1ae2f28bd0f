"""A small language model's layers in Keras, a table, and checkpoint folders as Hugging Face's library writes them."""

from __future__ import annotations

from pathlib import Path

import keras
import torch
from huggingface_hub import save_torch_state_dict
from keras import layers

TABLE = """
format: 2
keras: tests.conversion.streamed_model:build
layers:
  - {torch: embed, keras: embed, kind: embedding}
  - {torch: norm, keras: norm, kind: layer_norm}
  - {torch: up, keras: up, kind: linear}
  - {torch: down, keras: down, kind: linear}
tensors:
  - {torch: conv.weight, keras: conv/kernel, rule: "out in w -> w in out"}
  - {torch: [q.weight, k.weight], keras: qk/kernel, rule: "[part] out in -> in (part out)"}
  - {torch: swap, keras: held/swap, rule: "a b c -> a c b"}
  - {torch: scale, keras: held/scale, rule: "... -> ..."}
  - {torch: none, keras: held/none, rule: "out in -> in out"}
  - {torch: [b0, b1], keras: qk/bias, rule: "... -> ...", combine: sum}
tied:
  - {torch: lm_head.weight, same_as: embed.weight}
"""


class Held(layers.Layer):
    """Variables of every rank, one of them empty."""

    def __init__(self, empty: bool = True, **named: object) -> None:
        super().__init__(**named)
        self.empty = empty

    def build(self, shape: tuple[int, ...]) -> None:
        self.swap = self.add_weight(shape=(40, 6, 4), name="swap")
        self.scale = self.add_weight(shape=(), name="scale")
        if self.empty:
            self.none = self.add_weight(shape=(3, 0), name="none")

    def call(self, x: keras.KerasTensor) -> keras.KerasTensor:
        return x * self.scale


def without_empty() -> keras.Model:
    return build(empty=False)


def build(empty: bool = True) -> keras.Model:
    ids = keras.Input((6,), dtype="int32")
    x = layers.LayerNormalization(name="norm")(layers.Embedding(50, 8, name="embed")(ids))
    x = layers.Dense(8, name="down")(layers.Dense(300, use_bias=False, name="up")(x))
    x = Held(empty, name="held")(x)
    x = layers.Dense(12, name="qk")(layers.Conv1D(8, 9, padding="same", name="conv", use_bias=False)(x))
    return keras.Model(ids, x)


def tensors(dtype: torch.dtype = torch.bfloat16, scale: float = 1.0) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    shapes = {"embed.weight": (50, 8), "norm.weight": (8,), "norm.bias": (8,), "up.weight": (300, 8),
              "down.weight": (8, 300), "down.bias": (8,), "conv.weight": (8, 8, 9), "q.weight": (6, 8),
              "k.weight": (6, 8), "b0": (12,), "b1": (12,),
              "swap": (40, 4, 6), "scale": (), "none": (0, 3)}  # fmt: skip
    made = {name: (torch.randn(shape) * scale).to(dtype) for name, shape in shapes.items()}
    return {**made, "lm_head.weight": made["embed.weight"].clone()}


def table(folder: Path) -> Path:
    path = folder / "table.yaml"
    path.write_text(TABLE)
    return path


def sharded(folder: Path, state: dict[str, torch.Tensor], safe: bool = True) -> Path:
    folder.mkdir()
    save_torch_state_dict(state, folder, max_shard_size=700, safe_serialization=safe)
    return folder
