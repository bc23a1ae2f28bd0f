"""Recurrent layers: simple, LSTM and GRU, both directions, several layers, and their cells.

PyTorch keeps two biases. LSTM and simple layers of Keras have one, their sum; GRU has both, as rows. The gates of an
LSTM are in the same order on both sides (i, f, g, o; Keras calls g c); those of a GRU are r, z, n and z, r, n (Keras
calls n h). ``keras.layers.GRU`` needs ``reset_after=True``, its default, which is what PyTorch computes.
"""

from __future__ import annotations

from wdport.mapping.catalog import layouts, rules
from wdport.mapping.kinds.kind import Compared, Kind, Part, torch_classes

_GATES = {
    "rnn": ("h", "h"),
    "lstm": ("(gate=i,f,g,o h)", "(gate=i,f,g,o h)"),
    "gru": ("(gate=r,z,n h)", "(gate=z,r,n h)"),
}
_AXES = layouts("b t c", "t b c -> b t c")


def _parts(name: str, suffix: str, before: tuple[str, ...]) -> tuple[Part, ...]:
    """Return the tensors of one direction of one layer, in a cell at one of these paths."""
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


def _compared(name: str, within: str = "", back: bool = False) -> tuple[Compared, ...]:
    """Return the settings of one direction of a layer, or of a cell, which the port has ``within`` another layer."""
    gated = name in ("lstm", "gru")
    return (
        Compared("hidden_size", f"{within}units", "equal"),
        Compared("bias", f"{within}use_bias", "equal"),
        *([] if gated else [Compared("nonlinearity", f"{within}activation", "names")]),
        *([Compared("", f"{within}activation", "is", value="tanh")] if gated else []),
        *([Compared("", f"{within}recurrent_activation", "is", value="sigmoid")] if gated else []),
        *([Compared("", f"{within}reset_after", "is", value=True)] if name == "gru" else []),
        Compared("", f"{within}go_backwards", "is", value=back),
        Compared("", f"{within}recurrent_dropout", "is", "training", 0.0),
    )


_WHOLE = (Compared("proj_size", "", "none"), Compared("batch_first", "", "time"))


_LAYER = "_l{layer}"
_CLASSES = {"rnn": ("RNN", "SimpleRNN"), "lstm": ("LSTM", "LSTM"), "gru": ("GRU", "GRU")}

ALL = tuple(
    kind
    for name, (torch, keras) in _CLASSES.items()
    for kind in (
        Kind(
            name,
            _parts(name, _LAYER, ("cell/",)),
            _AXES,
            (*_compared(name), *_WHOLE),
            index="layer",
            torch=torch_classes(torch, when=lambda module: not module.bidirectional),
            keras=(keras, "RNN"),
        ),
        Kind(
            f"bidirectional_{name}",
            (
                *_parts(name, _LAYER, ("forward_layer/cell/",)),
                *_parts(name, f"{_LAYER}_reverse", ("backward_layer/cell/",)),
            ),
            _AXES,
            (
                Compared("bidirectional", "", "true"),
                Compared("", "merge_mode", "is", value="concat"),
                *_compared(name, "forward_layer."),
                *_compared(name, "backward_layer.", True),
                *_WHOLE,
            ),
            index="layer",
            torch=torch_classes(torch, when=lambda module: module.bidirectional),
            keras=("Bidirectional",),
        ),
        Kind(
            f"{name}_cell",
            _parts(name, "", ("", "cell/")),
            layouts("b c"),
            _compared(name),
            torch=torch_classes(f"{torch}Cell"),
            keras=(f"{keras}Cell",),
        ),
    )
)
