"""The calls inside attention and recurrent layers, which are one call to torch, recomputed from their parameters."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Mapping, Sequence

from .calls import Call, Calls, Note, inside, layer_of
from .errors import Refusal
from .nested import as_tensor, tensors_of, to_array
from .torch_functions import softmax_of_masked

if TYPE_CHECKING:
    from typing import TypeGuard

    from torch import Tensor
    from torch.nn import Module, MultiheadAttention, RNNBase

    from .shared_types import Given


RECOMPOSED = 1e-12
"""Maximum relative float64 difference between attention composed here and the module's own."""


KEYLESS = " has queries that see no key; they get zeros, where torch may also give NaN"


ATTENTION = ("query", "key", "value", "out")
"""Parts of ``torch.nn.MultiheadAttention`` at X that are recorded as calls ``X.query``, ``X.key``, ``X.value``
(tokens (B, L, E) to the projection before it is split into heads, (B, L, E)) and ``X.out`` (merged heads (B, L, E) to
the output)."""


def is_attention(part: Module) -> TypeGuard[MultiheadAttention]:
    """Whether a module is ``torch.nn.MultiheadAttention``."""
    from torch import nn

    return isinstance(part, nn.MultiheadAttention)


def _is_deep(part: Module) -> TypeGuard[RNNBase]:
    from torch import nn

    return isinstance(part, nn.RNNBase) and part.num_layers > 1


def steps_of(part: Module) -> tuple[str, ...]:
    """The recorded parts of a module that is one call to torch: :data:`ATTENTION`, or ``layer_<n>`` of an RNN."""
    if is_attention(part):
        return ATTENTION
    if _is_deep(part):
        return tuple(f"layer_{layer}" for layer in range(part.num_layers))
    return ()


def recompute(
    name: str, part: Module, arguments: Given, answers: Calls, note: Note
) -> tuple[dict[str, Call], list[Tensor]]:
    """The calls inside a module, recomputed from its parameters and inputs, and the resulting output tensors; empty if
    there are none, or, with a note, if the module does more than is recomputed here.

    Calls in ``answers`` are isolated, as :func:`isolate` does with modules.
    """
    if is_attention(part):
        calls, output = _attention(name, part, arguments, answers, note)
        return calls, [] if output is None else [output]
    return _recurrent(name, part, arguments, answers, note) if _is_deep(part) else ({}, [])


def _recurrent(
    name: str, part: RNNBase, arguments: Given, answers: Calls, note: Note
) -> tuple[dict[str, Call], list[Tensor]]:
    """The layers of ``torch.nn.LSTM``, ``GRU`` or ``RNN``; each maps a sequence to a sequence and last states."""
    import torch

    bound = inspect.signature(part.forward).bind(*arguments[0], **arguments[1]).arguments
    tokens, start = bound["input"], bound.get("hx")
    if not isinstance(tokens, torch.Tensor) or tokens.ndim != 3:
        note(f"{name} is fed a packed sequence or one without a batch, so its layers are not recorded")
        return {}, []
    ways = 2 if part.bidirectional else 1
    size = part.proj_size or part.hidden_size
    batch = tokens.shape[0 if part.batch_first else 1]
    widths = (size, part.hidden_size) if part.mode == "LSTM" else (size,)
    starts = start if isinstance(start, tuple) else (start,)
    if start is None:
        starts = tuple(tokens.new_zeros(ways * part.num_layers, batch, width) for width in widths)
    # What torch.nn.LSTM, GRU and RNN call, here with the weights of one layer.
    compute = getattr(torch._VF, {"LSTM": "lstm", "GRU": "gru"}.get(part.mode, part.mode.lower()))
    count = len(part._flat_weights) // part.num_layers
    calls, states = {}, []
    for layer in range(part.num_layers):
        call, span = inside(name, f"layer_{layer}"), slice(layer * ways, (layer + 1) * ways)
        answer, weights = answers.get(call), part._flat_weights[layer * count : (layer + 1) * count]
        first = tuple(state[span] for state in starts)
        fed = tokens if answer is None else as_tensor(answer.inputs[0])
        # After the weights: bias, one layer, no dropout, not training.
        outputs = compute(fed, first if part.mode == "LSTM" else first[0], weights, part.bias, 1, 0.0, False,
                          part.bidirectional, part.batch_first)  # fmt: skip
        calls[call] = Call((to_array(tokens),), tuple(map(to_array, outputs)), name)
        handed = list(outputs) if answer is None else [as_tensor(array) for array in answer.outputs]
        tokens = handed[0]
        states.append(handed[1:])
    return calls, [tokens, *(torch.cat(state) for state in zip(*states))]


def _attention(
    name: str, part: MultiheadAttention, arguments: Given, answers: Calls, note: Note
) -> tuple[dict[str, Call], Tensor | None]:
    """The four calls inside ``torch.nn.MultiheadAttention``, recomputed from its parameters and inputs, and its output,
    in the module's own layout; empty and ``None``, with a note, if it has additional keys. Tokens without a batch axis
    are one sample.

    Calls in ``answers`` are isolated, as :func:`isolate` does with modules.
    """
    from torch.nn.functional import linear

    bound = inspect.signature(part.forward).bind(*arguments[0], **arguments[1]).arguments
    tokens = _tokens(name, part, bound, note)
    if tokens is None:
        return {}, None
    calls: dict[str, Call] = {}

    def project(step: str, tokens: Tensor, weight: Tensor, bias: Tensor | None) -> Any:
        call = inside(name, step)
        answer = answers.get(call)
        projected = linear(tokens if answer is None else as_tensor(answer.inputs[0]), weight, bias)
        calls[call] = Call((to_array(tokens),), (to_array(projected),), name)
        return projected if answer is None else as_tensor(answer.outputs[0])

    weights: tuple[Tensor, ...] = (part.q_proj_weight, part.k_proj_weight, part.v_proj_weight)
    # With kdim or vdim, torch keeps three separate weights.
    weights = weights if part.in_proj_weight is None else part.in_proj_weight.chunk(3)
    biases = (None,) * 3 if part.in_proj_bias is None else part.in_proj_bias.chunk(3)
    width = part.embed_dim // part.num_heads
    query, key, value = (
        project(*inputs).unflatten(-1, (part.num_heads, width)).transpose(1, 2)
        for inputs in zip(ATTENTION[:3], tokens, weights, biases)
    )
    scores = query * width**-0.5 @ key.transpose(-1, -2)
    mask = _additive_mask(part, bound, scores)
    if mask is not None and bool((mask == -float("inf")).all(-1).any()):
        note(f"{name}{KEYLESS}")
    attended = softmax_of_masked(scores if mask is None else scores + mask) @ value
    output = project("out", attended.transpose(1, 2).flatten(2), part.out_proj.weight, part.out_proj.bias)
    if bound["query"].ndim == 2:
        return calls, output[0]
    return calls, output if part.batch_first else output.transpose(0, 1)


def _tokens(name: str, part: MultiheadAttention, bound: Mapping[str, Any], note: Note) -> list[Tensor] | None:
    """Query, key and value as (B, L, E), or ``None`` if the keys are not only these."""
    tokens = [bound.get(step) for step in ATTENTION[:3]]
    extras = ["bias_k"] if part.bias_k is not None else []
    extras += ["add_zero_attn"] if part.add_zero_attn else []
    ranks = {None if tensor is None else tensor.ndim for tensor in tokens}
    if not extras and ranks not in ({2}, {3}):
        extras = ["inputs other than query, key and value"]
    if extras:
        note(f"{name} is attention with {', '.join(extras)}, so its parts are not recorded")
        return None
    present = [tensor for tensor in tokens if tensor is not None]
    if ranks == {2}:
        return [tensor[None] for tensor in present]
    return [tensor if part.batch_first else tensor.transpose(0, 1) for tensor in present]


def _additive_mask(part: MultiheadAttention, bound: Mapping[str, Any], scores: Tensor) -> Tensor | None:
    """What the masks add to the scores (B, heads, L, S): -inf where a mask of bool is true.

    Without weights and without a mask of keys, ``is_causal`` replaces the mask, as in torch 2.0 and later.
    """
    import torch

    attended, padded = bound.get("attn_mask"), bound.get("key_padding_mask")
    if bound.get("is_causal") and padded is None and not bound.get("need_weights", True):
        attended = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
    masks = [] if attended is None else [attended if attended.ndim == 2 else attended.unflatten(0, scores.shape[:2])]
    masks += [] if padded is None else [padded.reshape(-1, 1, 1, padded.shape[-1])]
    added = [torch.zeros(mask.shape, dtype=scores.dtype, device=scores.device).masked_fill(mask, -float("inf"))
             if mask.dtype == torch.bool else mask for mask in masks]  # fmt: skip
    return sum(added[1:], added[0]) if added else None


def check_recomputed(name: str, recomputed: Sequence[Tensor], output: object) -> None:
    """Raise :class:`Refusal` if the recomputed output is not the module's own."""
    import torch

    for ours, actual in zip(recomputed, tensors_of(output)):
        # The bound is one for float64.
        if actual.dtype != torch.float64:
            continue
        error = float((ours - actual).norm() / actual.norm().clamp_min(1e-300))
        # Not `>`, which is false for NaN.
        if not error <= RECOMPOSED:
            fix = f"leave its parts out with --leave-out '{layer_of(name)}.*'"
            raise Refusal(6, name, f"its output is {error:.1e} off the one recomputed from its parameters", fix)
