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
            # torch.nn.Conv1d.weight -> keras.layers.Conv1D kernel.
            "conv1d": "out in window -> window in out",
            # torch.nn.MultiheadAttention.in_proj_weight: rows are q, k, v, and in each of them the
            # first head's rows come first -> query, key and value kernels of a Keras attention layer.
            "attention_packed_weight": "(part heads head) in -> [part] in heads head",
            "attention_packed_bias": "(part heads head) -> [part] heads head",
            # A projection of its own (q_proj.weight) -> one such kernel.
            "attention_weight": "(heads head) in -> in heads head",
            "attention_bias": "(heads head) -> heads head",
            # out_proj.weight reads the heads side by side -> kernel (heads, head, out).
            "attention_output": "out (heads head) -> heads head out",
        }.items()
    }
)
"""Rule by name; the axes of each are stated once, the inverse is derived."""


def find_rule(name: str) -> Rule | None:
    """The rule with this name, if there is one."""
    return RULES.get(name)
