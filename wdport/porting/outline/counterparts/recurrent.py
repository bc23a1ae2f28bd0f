"""Recurrent layers and cells, and attention."""

from __future__ import annotations

from wdport.porting.outline.counterparts.counterpart import Counterpart, Given, layer
from wdport.porting.outline.keras_calls import KerasCall
from wdport.porting.outline.settings import Settings

LAYERS = {"RNN": "SimpleRNN", "LSTM": "LSTM", "GRU": "GRU"}

GATES = {
    "LSTM": "gates lie in one order (i f g o) on both sides; PyTorch's two biases become their sum",
    "GRU": "gates are r z n in PyTorch and z r n in Keras; reset_after=True, with two biases, is what PyTorch computes",
    "RNN": "PyTorch's two biases become their sum",
}


def _own(name: str, told: Settings, cell: bool = False) -> KerasCall:
    """One layer in one direction."""
    arguments = {"units": told["hidden_size"], "use_bias": bool(told.get("bias", True))}
    origin = {"use_bias": "bias"}
    if name == "RNN":
        arguments["activation"] = told.get("nonlinearity", "tanh")
        origin["activation"] = "nonlinearity"
    if name == "GRU":
        arguments["reset_after"] = True
    if name != "RNN":
        arguments["recurrent_activation"] = "sigmoid"
    if not cell:
        arguments["return_sequences"] = True
    return layer(f"{LAYERS[name]}{'Cell' if cell else ''}", arguments, **origin)


def recurrent(name: str, told: Settings, given: Given) -> Counterpart:
    """``LSTM``, ``GRU`` and ``RNN``: one Keras layer for each layer."""
    ways = bool(told.get("bidirectional"))
    kind = f"{'bidirectional_' if ways else ''}{name.lower()}"
    if told.get("proj_size"):
        return Counterpart(kind, (), ("Keras's state and output are one: no proj_size",))
    own, count = _own(name, told), int(told.get("num_layers", 1))
    if ways:
        own = layer("Bidirectional", {"layer": own, "merge_mode": "concat"})
    notes = [GATES[name]]
    if count > 1:
        notes.append(f"{count} layers in sequence, with the row's keras as NAME_<layer>")
    if told.get("dropout") and count > 1:
        notes.append(f"dropout {told['dropout']:g} is applied between its layers, in Keras at a layer's input")
    if not told.get("batch_first"):
        notes.append("its axes are t b c (batch_first is false); Keras's are b t c")
    if any(index > 0 for index in given.used):
        notes.append("its last state is read: return_state=True" + (", separately for each direction" if ways else ""))
    if "hx" in given.arguments:
        notes.append("it is given an initial state: initial_state")
    if "packed" in given.arguments.values():
        notes.append("it is given packed sequences: in Keras a mask of the steps that count")
    return Counterpart(kind, (own,) * count, tuple(notes))


def cell(name: str, told: Settings, given: Given) -> Counterpart:
    """``LSTMCell`` and so on."""
    of = name.removesuffix("Cell")
    notes = [GATES[of]]
    if "hx" in given.arguments:
        notes.append("Keras's cell takes its states as a list and returns (output, states)")
    return Counterpart(f"{of.lower()}_cell", (_own(of, told, cell=True),), tuple(notes))


def attention(name: str, told: Settings, given: Given) -> Counterpart:
    """``MultiheadAttention``."""
    kind = "attention_packed"
    if told.get("add_bias_kv"):
        return Counterpart(kind, (), ("Keras has no learned key and value after the others (add_bias_kv)",))
    if told.get("add_zero_attn"):
        return Counterpart(kind, (), ("Keras has no zero key and value after the others (add_zero_attn)",))
    arguments = {
        "num_heads": told["num_heads"], "key_dim": told["embed_dim"] // told["num_heads"],
        "dropout": told.get("dropout", 0.0), "use_bias": bool(told.get("bias", True)),
    }  # fmt: skip
    call = layer("MultiHeadAttention", arguments, dropout="dropout", use_bias="bias")
    notes = ["Keras's arguments are query, value, key: the last two are exchanged"]
    if not told.get("batch_first"):
        notes.append("its axes are t b c (batch_first is false); Keras's are b t c")
    masks = {key: kind for key, kind in given.arguments.items() if key in ("attn_mask", "key_padding_mask")}
    if "bool" in masks.values():
        notes.append("PyTorch's masks are true where attention is blocked, Keras's where it is allowed: invert them")
    if "float" in masks.values():
        notes.append("its mask is added to the scores; Keras's is true or false: 0 is true, -inf is false")
    if "key_padding_mask" in masks:
        notes.append("key_padding_mask (b, s) is attention_mask[:, None, :] in Keras")
    if given.arguments.get("is_causal") == "True":
        notes.append("is_causal is use_causal_mask=True in Keras")
    if 1 in given.used:
        averaged = given.arguments.get("average_attn_weights") != "False"
        mean = ", which returns the scores of every head; PyTorch returns their mean" if averaged else ""
        notes.append(f"its weights are read: return_attention_scores=True{mean}")
    return Counterpart(kind, (call,), tuple(notes))
