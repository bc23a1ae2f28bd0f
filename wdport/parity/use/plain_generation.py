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
"""Steps in which a full block is edited at most."""


@dataclass(frozen=True)
class Rule:
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
    calls: list[Call] = field(default_factory=list)
    taken: int = 0


class Call(NamedTuple):
    """The tokens (N,), which of them were read (N,), and the ``logits`` (L, V) of the ``places`` (L,) of a block."""

    tokens: Array
    read: Array
    places: Array
    logits: Array


def complete_text(logits: Logits, prompt: Array, mask: int, rule: Rule, draws: Draws | None = None) -> Text:
    """Replace the ``mask`` tokens of a prompt and those behind it, block by block; ``draws`` are needed above
    temperature 0."""
    tokens = np.append(prompt, np.full(rule.length, mask)).astype(np.int64)
    text = Text(tokens, np.full(len(tokens), -1))
    wanted = np.flatnonzero(tokens == mask)
    size = rule.block_length or max(len(wanted), 1)
    for first in range(0, len(wanted), size):
        read = np.ones(len(tokens), bool)
        read[wanted[first + size :]] = False
        block = Block(wanted[first : first + size], first, read)
        text.taken = _fill(logits, text, block, mask, rule, text.taken, draws)
        if (end := _end(text.tokens, wanted, mask, rule.end)) is not None:
            return Text(text.tokens[: end + 1], text.steps[: end + 1], text.calls, text.taken)
    return text


class Block(NamedTuple):
    """The ``places`` (L,) of a block, the number of the ``first`` among all wanted tokens, and what is read (N,)."""

    places: Array
    first: int
    read: Array


def _end(tokens: Array, wanted: Array, mask: int, end: int | None) -> int | None:
    """The place of the token that ends the text, if it stands before every open mask."""
    for place in wanted:
        if tokens[place] == mask:
            return None
        if tokens[place] == end:
            return int(place)
    return None


def _fill(logits: Logits, text: Text, block: Block, mask: int, rule: Rule, taken: int, draws: Draws | None) -> int:
    """Fill one block, and edit it; returns the number of steps taken so far."""
    places, read = block.places, block.read
    each, rest = divmod(len(places), rule.steps)
    filled = edits = 0
    while True:
        made = logits(text.tokens, read)[places]
        text.calls.append(Call(text.tokens.copy(), read, places, made))
        if rule.temperature and draws is not None:
            best, chance = _drawn(made, mask, rule, [draws(taken, block.first + at) for at in range(len(places))])
        else:
            best, chance = _most_probable(made, mask)
        now = text.tokens[places]
        is_open = [at for at in range(len(places)) if now[at] == mask]
        least = each + (1 if filled < rest else 0)
        sure = [at for at in is_open if chance[at] > rule.threshold]
        by_chance = sorted(is_open, key=lambda at: -chance[at])
        chosen = sure if len(sure) >= least else by_chance[:least]
        changed = [at for at in range(len(places))
                   if rule.edit and at not in is_open and chance[at] > rule.edit and best[at] != now[at]]  # fmt: skip
        for at in (*chosen, *changed):
            text.tokens[places[at]], text.steps[places[at]] = best[at], taken
        taken += 1
        if _end(text.tokens, places, mask, rule.end) is not None:
            return taken
        if is_open:
            filled += 1
            full = len(chosen) == len(is_open)
            if filled >= rule.steps or (full and not rule.edit):
                return taken
        else:
            edits += 1
            if not changed or edits >= EDITS:
                return taken


def _drawn(logits: Array, mask: int, rule: Rule, noise: list[Array]) -> tuple[Array, Array]:
    """A drawn token (L,) of every place other than the mask, and its probability among those that may be drawn."""
    tokens, chances = [], []
    for row, own in zip(logits / rule.temperature, noise, strict=True):
        kept = [at for at in np.argsort(-row, kind="stable") if at != mask][: rule.top_k or len(row)]
        powers = np.exp(row[kept] - row[kept].max())
        chance = powers / powers.sum()
        if rule.top_p is not None:  # the most probable, up to the one with which they have this probability
            count = next((at + 1 for at in range(len(kept)) if chance[: at + 1].sum() > rule.top_p), len(kept))
            kept, chance = kept[:count], chance[:count] / chance[:count].sum()
        drawn = int(np.argmax(row[kept] + own[kept]))
        tokens.append(kept[drawn])
        chances.append(chance[drawn])
    return np.array(tokens), np.array(chances)


def _most_probable(logits: Array, mask: int) -> tuple[Array, Array]:
    """The most probable token (L,) of every place other than the mask, and its probability among those."""
    allowed = np.delete(logits, mask, axis=1)
    powers = np.exp(allowed - allowed.max(axis=1, keepdims=True))
    chance = powers / powers.sum(axis=1, keepdims=True)
    best = allowed.argmax(axis=1)
    return best + (best >= mask), chance.max(axis=1)
