"""Refine masked tokens block by block, the most confident first: the whole loop is one program.

Every setting is a run-time number, so a program compiled once serves every number of steps and every temperature. A
sample's tokens depend on nothing else in its batch. Sizes: B samples of N tokens, blocks of L tokens, V words.
Source: diffusers 0.42.1, ``BlockRefinementScheduler`` and the loop of ``LLaDA2Pipeline``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Tensor = Any
"""A NumPy or JAX array outside the loop, a traced one inside."""

Predict = Callable[[Tensor, Tensor], Tensor]
"""Tokens (B, W) up to the end of a window and a block's first position (a traced integer) to the block's logits
(B, L, V)."""

NEVER = -1
"""In :attr:`Refined.steps`: a token that was given, or that is still masked. No token has this id either."""


class UnmaskingSettings(NamedTuple):
    """How to refine, all run-time numbers.

    ``steps`` is the maximum number of steps per block, which is filled evenly. Tokens with a probability above
    ``threshold`` are committed earlier. ``editing``, if above zero, replaces a committed token by another with a
    probability above it, for at most ``posts`` steps after the block is full. ``temperature`` 0 takes the most probable
    token. ``top_k`` 0 and ``top_p`` 1 leave all tokens. ``end`` is the token that ends a text, or :data:`NEVER`.
    ``forbidden`` is a token that is never chosen, or :data:`NEVER`; or for each of V tokens whether it never is.
    """

    steps: Tensor = 32
    threshold: Tensor = 0.95
    editing: Tensor = 0.0
    posts: Tensor = 16
    temperature: Tensor = 0.0
    top_k: Tensor = 0
    top_p: Tensor = 1.0
    end: Tensor = NEVER
    forbidden: Tensor = NEVER


class Refined(NamedTuple):
    """Tokens (B, N); the step of the sample that last set each of them (B, N), counted over all blocks from 0; the
    steps of each sample (B,); the number of network calls."""

    tokens: Tensor
    steps: Tensor
    step_counts: Tensor
    calls: Tensor


class Window(NamedTuple):
    """Blocks ``first`` to ``last`` (exclusive) are refined with the tokens before ``end`` in view."""

    first: int
    last: int
    end: int


class _Carry(NamedTuple):
    """One block's loop: tokens and when they were set (B, W); per sample (B,): the total steps, the step in this
    block, the steps after its last mask, whether it continues, whether its text has ended; and the network calls."""

    tokens: Tensor
    when: Tensor
    step_counts: Tensor
    step: Tensor
    posts: Tensor
    going: Tensor
    ended: Tensor
    calls: Tensor


def windows(start: int, length: int, block: int, limit: int = 4) -> list[Window]:
    """Windows for ``length`` tokens after position ``start``, a multiple of ``block`` tokens.

    Each block sees the tokens up to its own end or, with at most ``limit`` windows, up to the end of the last block of
    its window.
    """
    count = length // block
    size = -(-count // limit)
    firsts = range(0, count, size)
    lasts = [min(first + size, count) for first in firsts]
    return [Window(first, last, start + last * block) for first, last in zip(firsts, lasts, strict=True)]


def refine(
    predict: Predict,
    tokens: Tensor,
    fixed: Tensor,
    mask: Tensor,
    start: int,
    block: int,
    among: Sequence[Window],
    settings: UnmaskingSettings,
    keys: Tensor,
) -> Refined:
    """Replace every ``mask`` among the tokens from position ``start`` on, block by block.

    Args:
        predict: the network; called once per step for all samples of the batch.
        tokens: (B, N) int32, with ``mask`` where a token is wanted.
        fixed: (B, N) bool, tokens that are never replaced: prompts, and the text around a gap.
        mask: the id of the mask token, which may be traced.
        start: position of the first block.
        block: tokens in a block.
        among: the windows, which together have every block once.
        settings: run-time numbers.
        keys: (B,) random keys, one per sample; used if the temperature is above zero. A token's draws depend on its
            sample's key, the sample's step, and its place after ``start``.
    """
    tokens = jnp.asarray(tokens, jnp.int32)
    when = jnp.full(tokens.shape, NEVER, jnp.int32)
    ended = _ended(tokens, fixed, mask, settings.end)
    zero = step_counts = jnp.zeros(len(tokens), jnp.int32)
    calls = jnp.zeros((), jnp.int32)
    # Each window has another static length, and so its own loop in the program.
    for window in among:
        visible, held = tokens[:, : window.end], fixed[:, : window.end]

        # ``held`` is bound now, since the loop over windows assigns it again.
        def one(block_index: Tensor, carry: _Carry, held: Tensor = held) -> _Carry:
            return _refine_block(predict, carry, held, mask, start + block_index * block, start, block, settings, keys)

        carry = _Carry(visible, when[:, : window.end], step_counts, zero, zero, ~ended, ended, calls)
        carry = jax.lax.fori_loop(window.first, window.last, one, carry)
        tokens = tokens.at[:, : window.end].set(carry.tokens)
        when = when.at[:, : window.end].set(carry.when)
        step_counts, ended, calls = carry.step_counts, carry.ended, carry.calls
    return Refined(tokens, when, step_counts, calls)


def _refine_block(
    predict: Predict,
    carry: _Carry,
    fixed: Tensor,
    mask: Tensor,
    start: Tensor,
    origin: int,
    size: int,
    settings: UnmaskingSettings,
    keys: Tensor,
) -> _Carry:
    """Refine one block of ``size`` tokens until no sample continues; the first block begins at ``origin``."""
    held = jax.lax.dynamic_slice_in_dim(fixed, start, size, axis=1)
    places = start - origin + jnp.arange(size)
    edits = jnp.asarray(settings.editing) > 0

    def cut(values: Tensor) -> Tensor:
        return jax.lax.dynamic_slice_in_dim(values, start, size, axis=1)

    open_first = (cut(carry.tokens) == mask) & ~held
    open_count = jnp.sum(open_first, axis=1)

    def advance(now: _Carry) -> _Carry:
        block = cut(now.tokens)
        open_before = jnp.any((block == mask) & ~held, axis=1)
        posts = now.posts + ~open_before
        chosen, chance = choose(predict(now.tokens, start), settings, keys, now.step_counts, places)
        commit = committed(block, chance, mask, held, quota(open_count, now.step, settings.steps), settings.threshold)
        edit = edited(block, chosen, chance, mask, held, settings.editing)
        write = (commit | edit) & now.going[:, None]
        filled = jnp.where(write, chosen, block)
        tokens = jax.lax.dynamic_update_slice_in_dim(now.tokens, filled, start, axis=1)
        block_when = jnp.where(write, now.step_counts[:, None], cut(now.when))
        when = jax.lax.dynamic_update_slice_in_dim(now.when, block_when, start, axis=1)
        step = now.step + open_before
        open_now = jnp.any((filled == mask) & ~held, axis=1)
        fills = (step < settings.steps) & (open_now | edits)
        polishes = edits & jnp.any(edit, axis=1) & (posts <= settings.posts)
        ended = now.ended | _ended(tokens, fixed, mask, settings.end)
        going = now.going & jnp.where(open_before, fills, polishes) & ~ended
        return _Carry(tokens, when, now.step_counts + now.going, step, posts, going, ended, now.calls + 1)

    zero = jnp.zeros_like(carry.step)
    going = (jnp.any(open_first, axis=1) | (edits & jnp.any(~held, axis=1))) & ~carry.ended
    begun = carry._replace(step=zero, posts=zero, going=going)
    return jax.lax.while_loop(lambda now: jnp.any(now.going), advance, begun)


def quota(open_count: Tensor, step: Tensor, steps: Tensor) -> Tensor:
    """The least number of tokens (B,) to commit in a sample's step: ``open_count`` (B,), of a block, divided evenly."""
    return open_count // steps + (step < open_count % steps)


def committed(block: Tensor, chance: Tensor, mask: Tensor, fixed: Tensor, least: Tensor, threshold: Tensor) -> Tensor:
    """Masked positions (B, L) to fill: all with a probability above ``threshold`` or, if these are fewer than ``least``
    (B,), that many with the highest probabilities ``chance`` (B, L)."""
    confidence = jnp.where((block == mask) & ~fixed, chance, -jnp.inf)
    high = confidence > threshold
    # The rank is the inverse of the sorting permutation. Stable: of equal probabilities the first position is taken.
    order = jnp.argsort(-confidence, axis=1, stable=True)
    rank = jnp.argsort(order, axis=1, stable=True)
    # The quota may exceed the masks that are left; positions without a mask have -inf.
    best = (rank < least[:, None]) & jnp.isfinite(confidence)
    return jnp.where(jnp.sum(high, axis=1, keepdims=True) >= least[:, None], high, best)


def edited(block: Tensor, chosen: Tensor, chance: Tensor, mask: Tensor, fixed: Tensor, editing: Tensor) -> Tensor:
    """Filled positions (B, L) whose token changes to one with a probability above ``editing``, if that is above 0."""
    return (block != mask) & ~fixed & (chance > editing) & (chosen != block) & (jnp.asarray(editing) > 0)


def choose(
    logits: Tensor, settings: UnmaskingSettings, keys: Tensor, step_counts: Tensor, places: Tensor
) -> tuple[Tensor, Tensor]:
    """A token (B, L) for every position and its probability (B, L), from logits (B, L, V); ``step_counts`` (B,) are
    the steps that the samples have taken and ``places`` (L,) the positions, whose draws are independent.

    With a temperature above zero tokens are drawn from the tempered and filtered distribution, whose probabilities are
    returned; otherwise the most probable token is taken, with its probability before any filter.
    """
    # At least float32, for the sums of exponentials over all words.
    logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    lowest = _lowest(logits)
    words = jnp.arange(logits.shape[-1])
    forbidden = jnp.asarray(settings.forbidden)
    logits = jnp.where(forbidden if forbidden.ndim else words == forbidden, lowest, logits)

    def greedy(_: Tensor) -> tuple[Tensor, Tensor]:
        # argmax returns int64 under x64, where a loop's carry has to keep its dtype.
        return jnp.argmax(logits, axis=-1).astype(jnp.int32), logits

    def drawn(temperature: Tensor) -> tuple[Tensor, Tensor]:
        tempered = logits / temperature
        filters = (jnp.asarray(settings.top_k) > 0) | (jnp.asarray(settings.top_p) < 1)
        top_logits = jax.lax.cond(
            filters, lambda values: filtered(values, settings.top_k, settings.top_p), lambda e: e, tempered
        )
        # One key per sample, step and position: a draw depends on neither the batch nor the length of a block.
        steps = jax.vmap(jax.random.fold_in)(keys, step_counts)
        place_keys = jax.vmap(lambda key: jax.vmap(partial(jax.random.fold_in, key))(places))(steps)
        return jax.vmap(jax.vmap(jax.random.categorical))(place_keys, top_logits).astype(jnp.int32), top_logits

    temperature = jnp.asarray(settings.temperature, logits.dtype)
    # The temperature is a run-time number: both branches are compiled, and one of them runs.
    chosen, from_which = jax.lax.cond(temperature > 0, drawn, greedy, temperature)
    value = jnp.take_along_axis(from_which, chosen[..., None], axis=-1)[..., 0]
    return chosen, jnp.exp(value - jax.nn.logsumexp(from_which, axis=-1))


def filtered(logits: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    """Logits (..., V) with the lowest finite number in place of all but the ``top_k`` largest, and of the tail beyond
    the probability ``top_p``; ties with the last one are kept."""
    lowest, size = _lowest(logits), logits.shape[-1]
    ordered = -jnp.sort(-logits, axis=-1)
    count = jnp.where(jnp.asarray(top_k) > 0, jnp.minimum(top_k, size), size)
    ordered = jnp.where(jnp.arange(size) < count, ordered, lowest)
    before = jnp.cumsum(jax.nn.softmax(ordered, axis=-1), axis=-1)
    # The probability before each token: the one with which top_p is reached stays, as in the library.
    before = jnp.concatenate([jnp.zeros_like(before[..., :1]), before[..., :-1]], axis=-1)
    # The sum of all probabilities may exceed 1 by rounding, so 1 is no filter at all.
    inside = ((before <= top_p) | (jnp.asarray(top_p) >= 1)) & (jnp.arange(size) < count)
    least = jnp.min(jnp.where(inside, ordered, jnp.inf), axis=-1, keepdims=True)
    return jnp.where(logits >= least, logits, lowest)


def _ended(tokens: Tensor, fixed: Tensor, mask: Tensor, end: Tensor) -> Tensor:
    """Whether a sample (B,) has the token ``end`` outside its given tokens, without a mask before it."""
    open_before = jnp.cumsum((tokens == mask) & ~fixed, axis=1) > 0
    return jnp.any((tokens == end) & ~fixed & ~open_before, axis=1)


def _lowest(logits: Tensor) -> float:
    """The lowest finite number of the logits' dtype, used for a probability of zero."""
    return float(np.finfo(logits.dtype).min)
