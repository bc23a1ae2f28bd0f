"""Complete one text by a plain loop in numpy, in its natural order and without padding; see docs/generation.md.

The program of `wdport generate` is compared with it, so it shares no code with it. It writes the rule of diffusers'
``BlockRefinementScheduler`` and of the loop of ``LLaDA2Pipeline``, token by token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from wdport.model import Array

Logits = Callable[[Array, Array], Array]
"""(tokens (N,), which of them are read (N,)) to the logits (N, V), in float64."""

Draws = Callable[[int, int], Array]
"""(the text's step, the number of a wanted token) to Gumbel noise (V,), whose sum with the logits has its largest value
at the token that is drawn."""

EDITS = 17
"""Maximum number of steps that edit a full block."""


@dataclass(frozen=True)
class FillRule:
    """The settings of `wdport generate` under the same names, with its defaults."""

    length: int = 0
    block_length: int | None = None
    steps: int = 4
    threshold: float = 0.95
    edit: float | None = None
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    end: int | None = None


@dataclass
class Text:
    """A text's tokens (N,), the step that last set each of them, -1 for given ones, the ``calls`` of the network, and
    the number of steps ``taken``."""

    tokens: Array
    steps: Array
    calls: list[NetworkCall] = field(default_factory=list)
    step_count: int = 0


class NetworkCall(NamedTuple):
    """The tokens (N,), which of them were read (N,), and the ``logits`` (L, V) of the ``places`` (L,) of a block."""

    tokens: Array
    read: Array
    places: Array
    logits: Array


def complete_text(logits: Logits, prompt: Array, mask: int, rule: FillRule, draws: Draws | None = None) -> Text:
    """Replace the ``mask`` tokens of a prompt and those appended to it, block by block; ``draws`` are needed above
    temperature 0."""
    tokens = np.append(prompt, np.full(rule.length, mask)).astype(np.int64)
    text = Text(tokens, np.full(len(tokens), -1))
    open_places = np.flatnonzero(tokens == mask)
    size = rule.block_length or max(len(open_places), 1)
    for first in range(0, len(open_places), size):
        read = np.ones(len(tokens), bool)
        read[open_places[first + size :]] = False
        block = TokenBlock(open_places[first : first + size], first, read)
        text.step_count = _fill(logits, text, block, mask, rule, text.step_count, draws)
        if (end := _end(text.tokens, open_places, mask, rule.end)) is not None:
            return Text(text.tokens[: end + 1], text.steps[: end + 1], text.calls, text.step_count)
    return text


class TokenBlock(NamedTuple):
    """The ``places`` (L,) of a block, the number of the ``first`` among all wanted tokens, and what is read (N,)."""

    places: Array
    first: int
    read: Array


def _end(tokens: Array, places: Array, mask: int, end: int | None) -> int | None:
    """The place of the token that ends the text, if it precedes every open mask."""
    for place in places:
        if tokens[place] == mask:
            return None
        if tokens[place] == end:
            return int(place)
    return None


def _fill(
    logits: Logits, text: Text, block: TokenBlock, mask: int, rule: FillRule, step: int, draws: Draws | None
) -> int:
    """Fill one block, and edit it; returns the number of steps taken so far."""
    places, read = block.places, block.read
    per_step, rest = divmod(len(places), rule.steps)
    filled = edits = 0
    while True:
        block_logits = logits(text.tokens, read)[places]
        # A copy, since the steps change the tokens in place.
        text.calls.append(NetworkCall(text.tokens.copy(), read, places, block_logits))
        if rule.temperature and draws is not None:
            noise = [draws(step, block.first + index) for index in range(len(places))]
            best, chance = _drawn(block_logits, mask, rule, noise)
        else:
            best, chance = _most_probable(block_logits, mask)
        now = text.tokens[places]
        is_open = [index for index in range(len(places)) if now[index] == mask]
        least = per_step + (1 if filled < rest else 0)
        sure = [index for index in is_open if chance[index] > rule.threshold]
        # sorted is stable: of equal chances the first place wins.
        by_chance = sorted(is_open, key=lambda index: -chance[index])
        chosen = sure if len(sure) >= least else by_chance[:least]
        differs = [index for index in range(len(places)) if best[index] != now[index]]
        changed = [index for index in differs if rule.edit and index not in is_open and chance[index] > rule.edit]
        for index in (*chosen, *changed):
            text.tokens[places[index]], text.steps[places[index]] = best[index], step
        step += 1
        if _end(text.tokens, places, mask, rule.end) is not None:
            return step
        if is_open:
            filled += 1
            full = len(chosen) == len(is_open)
            if filled >= rule.steps or (full and not rule.edit):
                return step
        else:
            edits += 1
            if not changed or edits >= EDITS:
                return step


def _drawn(logits: Array, mask: int, rule: FillRule, noise: list[Array]) -> tuple[Array, Array]:
    """A drawn token (L,) of every place other than the mask, and its probability among those that may be drawn."""
    tokens, chances = [], []
    for row, row_noise in zip(logits / rule.temperature, noise, strict=True):
        candidates = [token for token in np.argsort(-row, kind="stable") if token != mask][: rule.top_k or len(row)]
        powers = np.exp(row[candidates] - row[candidates].max())
        chance = powers / powers.sum()
        if rule.top_p is not None:  # the most probable, up to the one with which they have this probability
            counts = (count for count in range(1, len(candidates) + 1) if chance[:count].sum() > rule.top_p)
            count = next(counts, len(candidates))
            candidates, chance = candidates[:count], chance[:count] / chance[:count].sum()
        drawn = int(np.argmax(row[candidates] + row_noise[candidates]))
        tokens.append(candidates[drawn])
        chances.append(chance[drawn])
    return np.array(tokens), np.array(chances)


def _most_probable(logits: Array, mask: int) -> tuple[Array, Array]:
    """The most probable token (L,) of every place other than the mask, and its probability among those."""
    allowed = np.delete(logits, mask, axis=1)
    powers = np.exp(allowed - allowed.max(axis=1, keepdims=True))
    chance = powers / powers.sum(axis=1, keepdims=True)
    best = allowed.argmax(axis=1)
    # Indices after the deleted mask are one too low.
    return best + (best >= mask), chance.max(axis=1)
