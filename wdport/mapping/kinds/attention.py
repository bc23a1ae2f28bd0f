"""Attention: packed, as ``torch.nn.MultiheadAttention`` stores it, and with separate projections."""

from __future__ import annotations

from wdport.mapping.axes import Rule
from wdport.mapping.catalog import layouts, rules
from wdport.mapping.kinds.kind import Compared, Inner, Kind, Part, torch_classes

_PARTS = ("query", "key", "value")
_PROJECTION = rules("attention_weight", "linear")
_PROJECTION_BIAS = rules("attention_bias", "identity")
_OUTPUT = rules("attention_output", "linear")
_IDENTITY = rules("identity")

# Paths of a projection's layer: ours, those of keras.layers.MultiHeadAttention, and PyTorch's own name.
_PATHS: dict[str, tuple[str, ...]] = {part: (part, f"{part}_dense", f"_{part}_dense", f"{{{part}}}") for part in _PARTS}
_PATHS["out"] = ("out", "output_dense", "_output_dense", "attention_output", "{out}")


def _part(torch: str, part: str, variable: str, found: tuple[Rule, ...]) -> Part:
    """A tensor that fills one variable of one projection."""
    first, *others = (f"{path}/{variable}" for path in _PATHS[part])
    return Part((torch,), (first,), found, tuple((other,) for other in others), normed=variable == "kernel")


def _packed(torch: str, variable: str, found: tuple[Rule, ...]) -> Part:
    """A tensor that holds query, key and value."""
    paths = zip(*(_PATHS[part][:-1] for part in _PARTS), strict=True)
    first, *others = (tuple(f"{path}/{variable}" for path in each) for each in paths)
    return Part((torch,), first, found, tuple(others))


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
        # The recorder takes the module apart under these names; softmax does not see a bias of the keys.
        (*(Inner(part, _PATHS[part][:-1], shift=part == "key") for part in _PARTS), Inner("out", _PATHS["out"][:-1])),
        torch=torch_classes("MultiheadAttention"),
        keras=("MultiHeadAttention",),
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
    ),
)
