"""Dense layers, embeddings, what follows a flatten, and weights that PyTorch stores as a product."""

from __future__ import annotations

from functools import partial
from typing import Any

import keras
import torch
from keras import layers
from torch import nn

from tests.mapping.kind_layers import Flattened, new_norm, old_norm

from .pair import LAST, SEQ, Pair, State

FLAT = {"h": 3, "w": 4}
ROW = 'flatten: "{} -> h w c", sizes: {{h: 3, w: 4}}'


def after_flatten(units: int = 5) -> Any:
    return keras.Sequential([layers.Flatten(), layers.Dense(units, name="fc")])


class ZeroRow(layers.Embedding):  # type: ignore[misc]
    """An embedding whose row ``zero`` gives zeros whatever is stored there."""

    def __init__(self, *sizes: int, zero: int):
        super().__init__(*sizes)
        self.zero = zero

    def call(self, x: Any) -> Any:
        return super().call(x) * keras.ops.cast(x != self.zero, self.compute_dtype)[..., None]


def embedding(zero: int | None = None) -> Any:
    return layers.Embedding(7, 4) if zero is None else ZeroRow(7, 4, zero=zero)


def folded(module: nn.Module) -> State:
    """The state with spectral normalisation carried out: weight / sigma, and no parametrisation left."""
    plain = {name: tensor for name, tensor in module.state_dict().items() if "parametrizations" not in name}
    return plain | {"m.weight": module.get_submodule("m").weight}


def unfolded(module: nn.Module) -> State:
    """The state with the weight as it is stored, undivided."""
    return folded(module) | {"m.weight": module.state_dict()["m.parametrizations.weight.original"]}


def direction(module: nn.Module) -> State:
    """The state with the direction that weight normalisation stores, not scaled, as the weight."""
    state = module.state_dict()
    (weight,) = (tensor for name, tensor in state.items() if name.endswith(("weight_v", "original1")))
    return {"m.weight": weight, "m.bias": state["m.bias"]}


class Scaled(nn.Module):
    """An embedding times the square root of its width, as transformers have it."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 4)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.table(ids) * 2.0  # type: ignore[no-any-return]


class ScaledTwin(keras.layers.Layer):  # type: ignore[misc]
    def __init__(self, factor: float):
        super().__init__()
        self.table, self.factor = layers.Embedding(7, 4), factor

    def call(self, ids: Any) -> Any:
        return self.table(ids) * self.factor


ACTIVE = {"an activation is fused": {"activation": "relu"}}

PAIRS = (
    Pair("linear", "linear", partial(nn.Linear, 3, 5), partial(layers.Dense, 5), ((6, 3),), ACTIVE),
    Pair("linear, no bias, on sequences", "linear", partial(nn.Linear, 3, 5, bias=False),
         partial(layers.Dense, 5, use_bias=False), ((2, 7, 3),), ACTIVE),
    Pair("linear as a 1 x 1 convolution", "linear", partial(nn.Linear, 4, 5), partial(layers.Conv2D, 5, 1),
         ((2, 5, 6, 4),), {"stride 2": {"strides": 2}}, no_outline="its twin is another layer than the nearest"),
    Pair("linear after a flatten of (c h w)", "linear", Flattened, after_flatten, ((2, 2, 3, 4),),
         {"the order (w h c)": {"row": ROW.format("w h c")}, "the order (h w c)": {"row": ROW.format("h w c")}},
         LAST[2], "...", (".fc", "/fc"), ROW.format("c h w"), no_outline="its module is more layers than one"),
    Pair("linear after a permuted flatten, (w h c)", "linear", partial(Flattened, (0, 3, 2, 1)), after_flatten,
         ((2, 2, 3, 4),), {"the order (c h w)": {"row": ROW.format("c h w")}}, LAST[2], "...", (".fc", "/fc"),
         ROW.format("w h c"), no_outline="its module is more layers than one"),
    Pair("flatten of (c h w)", "flatten", nn.Flatten, layers.Flatten, ((2, 2, 3, 4),),
         {"Keras with channels_first": {"data_format": "channels_first"}}, LAST[2], "b (c h w) -> b (h w c)",
         row=ROW.format("c h w"), sizes=FLAT,
         no_outline="the order of its output is stated in the row of the next layer",
         no_model="a table states no layout of its output, only that of a linear layer after it"),
    Pair("embedding", "embedding", partial(nn.Embedding, 7, 4), embedding, ((4, 9),),
         {"id 0 taken for padding": {"zero": 0}, "the last id taken for padding": {"zero": 6}}, below=7,
         code=("zero",)),
    Pair("embedding with a trained row at padding_idx", "embedding", partial(nn.Embedding, 7, 4, padding_idx=0),
         embedding, ((4, 9),), {"zeros at the padding": {"zero": 0}}, below=7, code=("zero",)),
    Pair("embedding times the square root of its width", "embedding", Scaled, partial(ScaledTwin, factor=2.0),
         ((2, 5),), {"no factor": {"factor": 1.0}, "the width itself": {"factor": 4.0}}, at=(".table", "/table"),
         below=7,
         code=("factor",), no_outline="its module is more layers than one"),
    *(Pair(f"linear under weight_norm, {which}", "linear", partial(lambda norm: norm(nn.Linear(3, 5)), norm),
           partial(layers.Dense, 5), ((6, 3),), {"the direction alone": {"state": direction}})
      for which, norm in (("old keys", old_norm), ("new keys", new_norm))),
    Pair("conv1d under weight_norm over the inputs", "conv1d", lambda: new_norm(nn.Conv1d(4, 5, 3, padding=1), dim=1),
         partial(layers.Conv1D, 5, 3, padding="same"), SEQ, {"causal padding": {"padding": "causal"}}, LAST[1]),
    Pair("linear under spectral_norm, folded", "linear",
         lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(3, 5)), partial(layers.Dense, 5), ((6, 3),),
         {"the stored weight": {"state": unfolded}}, state=folded, no_model="its checkpoint is not that of its module"),
    Pair("conv2d under spectral_norm, folded", "conv2d",
         lambda: nn.utils.parametrizations.spectral_norm(nn.Conv2d(4, 5, 3)), partial(layers.Conv2D, 5, 3),
         ((2, 4, 6, 5),), {"the stored weight": {"state": unfolded}}, LAST[2], state=folded,
         no_model="its checkpoint is not that of its module"),
)  # fmt: skip
