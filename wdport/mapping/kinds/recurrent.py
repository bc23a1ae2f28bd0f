"""Recurrent layers: simple, LSTM and GRU, both directions, several layers, and their cells.

PyTorch keeps two biases. LSTM and simple layers of Keras have one, their sum; GRU has both, as rows. The gates of an
LSTM are in the same order on both sides (i, f, g, o; Keras calls g c); those of a GRU are r, z, n and z, r, n (Keras
calls n h). ``keras.layers.GRU`` needs ``reset_after=True``, its default, which is what PyTorch computes.
"""

from __future__ import annotations

from wdport.mapping.axes import layouts, rules
from wdport.mapping.kinds.kind import (
    Compared,
    Counterpart,
    KerasCall,
    Kind,
    Part,
    Settings,
    TorchCall,
    layer,
    torch_classes,
)

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
    # Keras's GRU stores both biases, as rows, if it applies the reset gate after the recurrent product, as PyTorch
    # does.
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
        # PyTorch has no dropout of the recurrent input.
        Compared("", f"{within}recurrent_dropout", "is", "training", 0.0),
    )


_WHOLE = (Compared("proj_size", "", "none"), Compared("batch_first", "", "time"))


_LAYER = "_l{layer}"
_CLASSES = {"rnn": ("RNN", "SimpleRNN"), "lstm": ("LSTM", "LSTM"), "gru": ("GRU", "GRU")}
_NOTES = {
    "rnn": "PyTorch's two biases become their sum",
    "lstm": "gates have the same order (i f g o) on both sides; PyTorch's two biases become their sum",
    "gru": "gates are r z n in PyTorch and z r n in Keras; reset_after=True, with two biases, is what PyTorch computes",
}


def _one(name: str, settings: Settings, suffix: str = "", **more: object) -> KerasCall:
    """One layer in one direction, or a cell."""
    arguments = {"units": settings["hidden_size"], "use_bias": bool(settings.get("bias", True))}
    origin = {"use_bias": "bias"}
    if name == "rnn":
        arguments["activation"] = settings.get("nonlinearity", "tanh")
        origin["activation"] = "nonlinearity"
    if name == "gru":
        arguments["reset_after"] = True
    if name != "rnn":
        arguments["recurrent_activation"] = "sigmoid"
    return layer(f"{_CLASSES[name][1]}{suffix}", {**arguments, **more}, **origin)


def _recurrent(name: str, settings: Settings, call: TorchCall) -> Counterpart:
    """``LSTM``, ``GRU`` and ``RNN``: one Keras layer for each layer."""
    name, both = name.lower(), bool(settings.get("bidirectional"))
    kind = f"bidirectional_{name}" if both else name
    if settings.get("proj_size"):
        return Counterpart((), ("Keras's state and output are one: no proj_size",), kind)
    rnn, count = _one(name, settings, return_sequences=True), int(settings.get("num_layers", 1))
    if both:
        rnn = layer("Bidirectional", {"layer": rnn, "merge_mode": "concat"})
    notes = [_NOTES[name]]
    if count > 1:
        notes.append(f"{count} layers in sequence, with the row's keras as NAME_<layer>")
    # PyTorch applies dropout only between layers.
    if settings.get("dropout") and count > 1:
        notes.append(f"dropout {settings['dropout']:g} is applied between its layers, in Keras at a layer's input")
    if not settings.get("batch_first"):
        notes.append("its axes are t b c (batch_first is false); Keras's are b t c")
    # Outputs other than the first are the last states.
    if any(index > 0 for index in call.used):
        notes.append("its last state is read: return_state=True" + (", separately for each direction" if both else ""))
    if "hx" in call.arguments:
        notes.append("it is given an initial state: initial_state")
    if "packed" in call.arguments.values():
        notes.append("it is given packed sequences: in Keras a mask of the steps that count")
    return Counterpart((rnn,) * count, tuple(notes), kind)


def _cell(name: str, settings: Settings, call: TorchCall) -> Counterpart:
    """``LSTMCell`` and so on."""
    name = name.removesuffix("Cell").lower()
    states = ("Keras's cell takes its states as a list and returns (output, states)",)
    notes = (_NOTES[name], *(states if "hx" in call.arguments else ()))
    return Counterpart((_one(name, settings, "Cell"),), notes)


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
            torch=torch_classes(torch, when=lambda module: not module.bidirectional, output="features"),
            keras=(keras, "RNN"),
            note="one direction",
            call=_recurrent,
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
            torch=torch_classes(torch, when=lambda module: module.bidirectional, output="features"),
            keras=("Bidirectional",),
            note="both directions",
            call=_recurrent,
        ),
        Kind(
            f"{name}_cell",
            _parts(name, "", ("", "cell/")),
            layouts("b c"),
            _compared(name),
            torch=torch_classes(f"{torch}Cell"),
            keras=(f"{keras}Cell",),
            call=_cell,
            note="one step",
        ),
    )
)
