"""Attention: packed, as ``torch.nn.MultiheadAttention`` stores it, and with separate projections."""

from __future__ import annotations

from typing import Any

from wdport.mapping.axes import Rule, layouts, rules
from wdport.mapping.kinds.kind import Compared, Counterpart, Inner, Kind, Part, Settings, TorchCall, TorchClass, layer

_PARTS = ("query", "key", "value")
HEADS_FIRST = "(heads head) in -> heads in head"
"""The rule of a projection whose kernel has its heads first."""

_PROJECTION = rules("attention_weight", "linear", HEADS_FIRST)
_PROJECTION_BIAS = rules("attention_bias", "identity")
_OUTPUT = rules("attention_output", "linear")
_IDENTITY = rules("identity")

# Paths of a projection's layer: ours, those of keras.layers.MultiHeadAttention, and PyTorch's own name.
_PATHS: dict[str, tuple[str, ...]] = {part: (part, f"{part}_dense", f"_{part}_dense", f"{{{part}}}") for part in _PARTS}
_PATHS["out"] = ("out", "output_dense", "_output_dense", "attention_output", "{out}")


def _part(torch: str, part: str, variable: str, variants: tuple[Rule, ...]) -> Part:
    """A tensor that fills one variable of one projection."""
    first, *others = (f"{path}/{variable}" for path in _PATHS[part])
    return Part((torch,), (first,), variants, tuple((other,) for other in others), normed=variable == "kernel")


def _packed(torch: str, variable: str, variants: tuple[Rule, ...]) -> Part:
    """A tensor that holds query, key and value."""
    paths = zip(*(_PATHS[part][:-1] for part in _PARTS), strict=True)
    first, *others = (tuple(f"{path}/{variable}" for path in projection_paths) for projection_paths in paths)
    return Part((torch,), first, variants, tuple(others))


_OUT = (_part("{out}.weight", "out", "kernel", _OUTPUT), _part("{out}.bias", "out", "bias", _IDENTITY))
_COMPARED = (
    *(Compared(name, "num_heads", "equal") for name in ("num_heads", "heads", "n_heads", "n_head")),
    Compared("num_heads", "num_query_heads", "equal"),
    *(Compared(name, "num_key_value_heads", "equal") for name in ("num_key_value_heads", "num_kv_heads")),
    *(Compared(name, "heads", "equal") for name in ("num_heads", "heads")),
    Compared("head_dim", "key_dim", "equal"),
    Compared("head_dim", "value_dim", "equal"),
    Compared("head_dim", "head_dim", "equal"),
    Compared("scale", "scale", "equal"),
    Compared("dropout", "dropout", "equal", "training"),
)
_AXES = layouts("b t c", "t b c -> b t c")


def _biases(module: Any) -> dict[str, object]:
    return {"bias": module.in_proj_bias is not None, "add_bias_kv": module.bias_k is not None}


def _counterpart(name: str, settings: Settings, call: TorchCall) -> Counterpart:
    """``MultiheadAttention``."""
    if settings.get("add_bias_kv"):
        return Counterpart((), ("Keras has no learned key and value after the others (add_bias_kv)",))
    if settings.get("add_zero_attn"):
        return Counterpart((), ("Keras has no zero key and value after the others (add_zero_attn)",))
    arguments = {
        "num_heads": settings["num_heads"], "key_dim": settings["embed_dim"] // settings["num_heads"],
        "dropout": settings.get("dropout", 0.0), "use_bias": bool(settings.get("bias", True)),
    }  # fmt: skip
    attention = layer("MultiHeadAttention", arguments, dropout="dropout", use_bias="bias")
    notes = ["Keras's arguments are query, value, key: the last two are exchanged"]
    if not settings.get("batch_first"):
        notes.append("its axes are t b c (batch_first is false); Keras's are b t c")
    masks = {key: values for key, values in call.arguments.items() if key in ("attn_mask", "key_padding_mask")}
    if "bool" in masks.values():
        notes.append("PyTorch's masks are true where attention is blocked, Keras's where it is allowed: invert them")
    if "float" in masks.values():
        notes.append("its mask is added to the scores; Keras's is true or false: 0 is true, -inf is false")
    if "key_padding_mask" in masks:
        notes.append("key_padding_mask (b, s) is attention_mask[:, None, :] in Keras")
    if call.arguments.get("is_causal") == "True":
        notes.append("is_causal is use_causal_mask=True in Keras")
    # The second output are the attention weights; Keras computes them only on request.
    if 1 in call.used:
        averaged = call.arguments.get("average_attn_weights") != "False"
        mean = ", which returns the scores of every head; PyTorch returns their mean" if averaged else ""
        notes.append(f"its weights are read: return_attention_scores=True{mean}")
    return Counterpart((attention,), tuple(notes))


ALL = (
    Kind(
        "attention_packed",
        (
            _packed("{packed_weight}", "kernel", rules("attention_packed_weight", "(part out) in -> [part] in out")),
            _packed("{packed_bias}", "bias", rules("attention_packed_bias", "(part out) -> [part] out")),
            # With kdim or vdim PyTorch keeps three weights, while the biases stay packed.
            *(_part(f"{{{part}}}", part, "kernel", _PROJECTION) for part in _PARTS),
            *_OUT,
        ),
        _AXES,
        (
            *_COMPARED,
            Compared("in_proj_bias", "use_bias", "present"),
            Compared("bias_k", "", "none"),
            Compared("add_zero_attn", "", "none"),
            Compared("batch_first", "", "time"),
        ),
        {
            "packed_weight": "in_proj_weight",
            "packed_bias": "in_proj_bias",
            **{part: f"{part[0]}_proj_weight" for part in _PARTS},
            "out": "out_proj",
        },
        # The recorder records the module's parts under these names; softmax does not see a bias of the keys.
        (*(Inner(part, _PATHS[part][:-1], shift=part == "key") for part in _PARTS), Inner("out", _PATHS["out"][:-1])),
        torch=(TorchClass("torch.nn.MultiheadAttention", settings=_biases),),
        keras=("MultiHeadAttention",),
        call=_counterpart,
        note="`torch.nn.MultiheadAttention`, with or without `kdim` and `vdim`",
    ),
    Kind(
        "attention",
        (
            *(_part(f"{{{part}}}.weight", part, "kernel", _PROJECTION) for part in _PARTS),
            *(_part(f"{{{part}}}.bias", part, "bias", _PROJECTION_BIAS) for part in _PARTS),
            *_OUT,
        ),
        _AXES,
        _COMPARED,
        {**{part: f"{part[0]}_proj" for part in _PARTS}, "out": "out_proj"},
        tuple(Inner(f"{{{part}}}", paths) for part, paths in _PATHS.items()),
        note="separate projections, by default `q_proj`, `k_proj`, `v_proj`, `out_proj`",
    ),
)
