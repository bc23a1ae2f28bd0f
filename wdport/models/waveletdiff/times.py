"""What depends on time alone: the sampling network's tables beside the same by the Keras model's own layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from keras import ops

Tensor = Any


def time_tables(model: Any, times: Tensor, conditions: Any) -> Iterator[tuple[str, Tensor, Tensor]]:
    """By Keras layer path: the table that sampling uses, (S, n), and what the layer makes of ``times`` (S,).

    ``conditions`` are what the model's :meth:`Denoiser.conditions` makes of them. Of a gate's layer it is the half
    that does not see the tokens.
    """
    embedded = model.time_embedding(times)
    for level, blocks in enumerate(conditions["norms"]):
        for block, norms in enumerate(blocks):
            own = getattr(getattr(model, f"level_{level}"), f"block_{block}")
            for name, halves in zip(("norm1", "norm2"), norms, strict=True):
                layer = getattr(own, name).ada_lin
                yield f"level_{level}/block_{block}/{name}/ada_lin", ops.concatenate(halves, axis=-1), layer(embedded)
    for level, (halves, gate) in enumerate(conditions["gates"]):
        norm, linear = (getattr(model.cross_level, f"{part}_{level}") for part in ("norm", "gate"))
        yield f"cross_level/norm_{level}/ada_lin", ops.concatenate(halves, axis=-1), norm.ada_lin(embedded)
        tokens = ops.zeros((len(embedded), linear.linear.units), embedded.dtype)
        yield f"cross_level/gate_{level}/linear", gate, linear.linear(ops.concatenate([tokens, embedded], axis=-1))
