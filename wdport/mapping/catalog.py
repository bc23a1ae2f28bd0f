"""The named rules: what each kind of PyTorch weight looks like in Keras, as axis expressions."""

from __future__ import annotations

from types import MappingProxyType

from wdport.mapping.axes import Rule, parse_rule

RULES = MappingProxyType(
    {
        name: parse_rule(name, text)
        for name, text in {
            # The same axes on both sides: biases, scales, embeddings, tables.
            "identity": "... -> ...",
            # torch.nn.Linear.weight -> keras.layers.Dense kernel.
            "linear": "out in -> in out",
            # torch.nn.Conv1d.weight -> keras.layers.Conv1D kernel, and so on; grouped ones as well.
            "conv1d": "out in window -> window in out",
            "conv2d": "out in h w -> h w in out",
            "conv3d": "out in d h w -> d h w in out",
            # A convolution with as many groups as channels -> keras.layers.DepthwiseConv1D and 2D.
            "depthwise_conv1d": "(in mult) 1 window -> window in mult",
            "depthwise_conv2d": "(in mult) 1 h w -> h w in mult",
            # torch.nn.ConvTranspose1d.weight -> keras.layers.Conv1DTranspose kernel.
            "conv_transpose1d": "in out window -> window out in",
            "conv_transpose2d": "in out h w -> h w out in",
            "conv_transpose3d": "in out d h w -> d h w out in",
            # torch.nn.MultiheadAttention.in_proj_weight: rows are q, k, v, and in each of them the
            # first head's rows come first -> query, key and value kernels of a Keras attention layer.
            "attention_packed_weight": "(part heads head) in -> [part] in heads head",
            "attention_packed_bias": "(part heads head) -> [part] heads head",
            # A separate projection (q_proj.weight) -> one such kernel.
            "attention_weight": "(heads head) in -> in heads head",
            "attention_bias": "(heads head) -> heads head",
            # out_proj.weight reads the heads side by side -> kernel (heads, head, out).
            "attention_output": "out (heads head) -> heads head out",
        }.items()
    }
)
"""Rule by name; the axes of each are stated once, the inverse is derived."""


def find_rule(text: str) -> Rule | None:
    """Return the rule with this name, or parse the text as a rule; raises :class:`AxisError` for invalid text."""
    return parse_rule(text.strip(), text) if "->" in text else RULES.get(text)


def rules(*texts: str) -> tuple[Rule, ...]:
    """Return rules by name or text."""
    return tuple(rule for text in texts if (rule := find_rule(text)) is not None)


def layouts(*texts: str) -> tuple[Rule, ...]:
    """Parse layouts; a text without an arrow is the same on both sides."""
    return tuple(parse_rule(t, t) for t in (text if "->" in text else f"{text} -> {text}" for text in texts))


# Four axes are an image; three are a sequence, whose features come last in both unless the shapes say otherwise.
ANY_LAYOUT = layouts("b c h w -> b h w c", "b c d h w -> b d h w c", "...", "b c l -> b l c")
