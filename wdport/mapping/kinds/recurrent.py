"""Recurrent layers: simple, LSTM and GRU, both directions, several layers, and their cells.

PyTorch keeps two biases. LSTM and simple layers of Keras have one, their sum; GRU has both, as rows. The gates of an
LSTM are in the same order on both sides (i, f, g, o; Keras calls g c); those of a GRU are r, z, n and z, r, n (Keras
calls n h). ``keras.layers.GRU`` needs ``reset_after=True``, its default, which is what PyTorch computes.
"""

from __future__ import annotations

from wdport.mapping.catalog import layouts, rules
from wdport.mapping.kinds.kind import Compared, Kind, Part

_GATES = {
    "rnn": ("h", "h"),
    "lstm": ("(gate=i,f,g,o h)", "(gate=i,f,g,o h)"),
    "gru": ("(gate=r,z,n h)", "(gate=z,r,n h)"),
}
_AXES = layouts("b t c", "t b c -> b t c")


def _parts(name: str, suffix: str, before: tuple[str, ...]) -> tuple[Part, ...]:
    """The tensors of one direction of one layer, in a cell at one of these paths."""
    torch, keras = _GATES[name]
    paths = {
        variable: tuple((f"{path}{variable}",) for path in before)
        for variable in ("kernel", "recurrent_kernel", "bias")
    }
    kernel = rules(f"{torch} in -> in {keras}")
    both = (f"bias_ih{suffix}", f"bias_hh{suffix}")
    bias = Part(both, paths["bias"][0], rules(f"{torch} -> {keras}"), paths["bias"][1:], "sum")
    if name == "gru":
        bias = Part(both, paths["bias"][0], rules(f"[bias] {torch} -> bias {keras}"), paths["bias"][1:])
    return (
        Part((f"weight_ih{suffix}",), paths["kernel"][0], kernel, paths["kernel"][1:], normed=True),
        Part((f"weight_hh{suffix}",), paths["recurrent_kernel"][0], kernel, paths["recurrent_kernel"][1:], normed=True),
        bias,
    )


def _compared(name: str) -> tuple[Compared, ...]:
    found = (Compared("hidden_size", "units", "equal"), Compared("bias", "use_bias", "equal"))
    own = {"lstm": (Compared("proj_size", "", "none"),), "gru": (Compared("", "reset_after", "true"),)}
    return (*found, *own.get(name, (Compared("nonlinearity", "activation", "names"),)))


_LAYER = "_l{layer}"

ALL = tuple(
    kind
    for name in _GATES
    for kind in (
        Kind(name, _parts(name, _LAYER, ("cell/",)), _AXES, _compared(name), index="layer"),
        Kind(
            f"bidirectional_{name}",
            (
                *_parts(name, _LAYER, ("forward_layer/cell/",)),
                *_parts(name, f"{_LAYER}_reverse", ("backward_layer/cell/",)),
            ),
            _AXES,
            (Compared("bidirectional", "", "true"),),
            index="layer",
        ),
        Kind(f"{name}_cell", _parts(name, "", ("", "cell/")), layouts("b c"), _compared(name)[:2]),
    )
)
