"""Gate generation (I): the program of `wdport generate` against a plain loop, token for token.

The loop is compared with a network of a few operations, over many settings. The model's own network, as the program
calls it, is compared with the reference at every step of a plain loop, in float64 and in float32; the full battery also
compares the tokens that it writes.

The plain loop completes one text in numpy, in its natural order and without padding; see docs/generation.md. It shares
no code with the program. It writes the rule of diffusers' ``BlockRefinementScheduler`` and of the loop of
``LLaDA2Pipeline``, token by token.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wdport.base.jax_settings import FAST_COMPILE, fast_compile
from wdport.compare.findings import Gate
from wdport.compare.programs import CompiledProgram
from wdport.models.interface import Array, KerasModel, Vocabulary
from wdport.uses.gates.end_to_end.sides import UseMeasures
from wdport.uses.generation.api import Generator, complete, generate, settings_of
from wdport.uses.generation.prompts import arranged
from wdport.uses.roles import Completing, TokenNetwork

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


Tokens = Callable[[str, Array, Array], Array]
"""The reference: (dtype, tokens (B, N), which of them are read (B, N)) to the logits (B, N, V)."""

SEED = 0
WORDS, MASK = 13, 4
"""Tokens of the small network, and its mask token."""

RULES = (
    FillRule(steps=2, threshold=0.4, edit=0.3),
    FillRule(length=18, block_length=4, steps=3, threshold=1.0),
    FillRule(length=14, block_length=4, steps=2, threshold=0.3, edit=0.25),
    FillRule(length=14, block_length=4, steps=4, threshold=0.4, edit=0.3, temperature=1.3, top_k=3),
    FillRule(length=14, block_length=4, steps=4, threshold=0.5, temperature=1.0, top_p=0.6),
    FillRule(length=14, block_length=4, steps=2, threshold=1.0, temperature=5.0, end=1),
)
"""Of prompts of different lengths in one batch: gaps, then open ends. Each length and block is a program to compile. In
the second one there are more blocks than windows, so that a window has several. In the last one, a text's end is drawn
while masks before it are open."""

OWN = FillRule(length=2, steps=2, threshold=1.0)
"""Of the model's own network: several steps of one block."""

OWN_RULES = (OWN, FillRule(length=4, block_length=3, steps=2, threshold=0.3, edit=0.2))


@dataclass(frozen=True)
class SidePair:
    """The two sides: the port's models by dtype and the reference."""

    family: Completing
    models: Mapping[str, KerasModel]
    reference: Tokens

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokens; one of them serves as the mask if the configuration names none."""
        tokens = self.family.vocabulary(self.models["float64"].config)
        return tokens if tokens.mask is not None else Vocabulary(tokens.size, 0)


def generation_gate(pair: SidePair, full: bool) -> Gate:
    """Gate generation (I)."""
    comparison = UseMeasures("logic")
    with jax.enable_x64(True):
        small = Generator(Vocabulary(WORDS, MASK), _Small(), True, fast_compile())
    for mask, rule in [*((MASK, rule) for rule in RULES), *((0, rule) for rule in RULES[:1])]:
        prompts = _prompts(WORDS, mask)
        if rule.length:
            prompts = [prompt[prompt != mask] for prompt in prompts]
        if rule.end is not None:
            prompts[0][0] = rule.end  # which ends no text there
        _compare_tokens(comparison, "a small network", small, _small_logits, prompts, rule, mask)
    defaults = inspect.signature(generate).parameters
    names = [field.name for field in fields(FillRule) if field.name not in ("length", "steps")]
    argument_defaults = {name: defaults[name].default for name in names}
    usual = {name: getattr(FillRule(), name) for name in argument_defaults}
    comparison.add("defaults", lambda: np.array([argument_defaults == usual], float), np.ones(1))
    vocabulary = pair.vocabulary
    if vocabulary.size > 2:  # otherwise there is nothing to choose from
        _compare_own(comparison, pair, vocabulary, full)
    return comparison.gate("I")


def _compare_own(comparison: UseMeasures, pair: SidePair, vocabulary: Vocabulary, full: bool) -> None:
    def logits(tokens: Array, read: Array) -> Array:
        of_token: Array = pair.reference("float64", tokens[None], read[None])[0]
        return of_token

    mask = int(vocabulary.mask or 0)
    prompts = _prompts(vocabulary.size, mask)
    texts = [complete_text(logits, prompt, mask, OWN) for prompt in prompts]
    _compare_logits(comparison, pair, texts, mask)
    model = pair.models["float64"]
    for rule in OWN_RULES if full else ():
        generator = Generator(vocabulary, pair.family.token_network(model), True, fast_compile())
        _compare_tokens(comparison, "the model", generator, logits, prompts, rule, mask)


def _compare_tokens(
    comparison: UseMeasures, who: str, generator: Generator, logits: Logits, prompts: Sequence[Array], rule: FillRule,
    mask: int,
) -> None:  # fmt: skip
    """Every token of every text, and the step that set it."""
    size = generator.vocabulary.size
    texts = [complete_text(logits, prompt, mask, rule, _draws(index, size)) for index, prompt in enumerate(prompts)]
    settings = settings_of(size, mask, rule.steps, rule.threshold, rule.edit, rule.temperature, rule.top_k, rule.top_p,
                           rule.end)  # fmt: skip
    with jax.default_matmul_precision("highest"):
        # Fewer than all prompts in a batch, so that the last batch is not full.
        completion = complete(generator, prompts, mask, settings, rule.length, rule.block_length, SEED,
                              batch=len(prompts) - 1)  # fmt: skip
    name = f"{who}, length {rule.length}, block {rule.block_length or 'one'}, threshold {rule.threshold:g}"
    options = {option: getattr(rule, option) for option in ("edit", "temperature", "top_k", "top_p", "end")}
    name += "".join(f", {option} {value:g}" for option, value in options.items() if value)
    name += f", mask {mask}" * (not mask)
    parts: dict[str, tuple[Sequence[Array], Sequence[Array]]] = {
        "tokens": (completion.tokens, [text.tokens for text in texts]),
        "steps": (completion.steps, [text.steps for text in texts]),
        "numbers of steps": ([completion.taken], [np.array([text.step_count for text in texts])]),
    }
    for part, (ours, theirs) in parts.items():
        comparison.add(f"{part} of {name}", partial(np.concatenate, ours), np.concatenate(theirs))


def _draws(sample: int, size: int) -> Draws:
    """The noise of a sample: it depends on the seed, on the sample's number, on its step and on the token's number."""

    def noise(step: int, place: int) -> Array:
        with jax.enable_x64(True):
            key = jax.random.key(np.uint32(SEED))
            for number in (sample, step, place):
                key = jax.random.fold_in(key, np.uint32(number))
            return np.asarray(jax.random.gumbel(key, (size,), np.float64))

    return noise


def _compare_logits(comparison: UseMeasures, pair: SidePair, texts: Sequence[Text], mask: int) -> None:
    """The network of the block program, with the tokens of every step of the plain loop, arranged as there."""
    calls = [call for text in texts for call in text.calls]
    masked = [np.where(np.isin(np.arange(len(call.tokens)), call.places), mask, call.tokens) for call in calls]
    batch = arranged([row.astype(np.int32) for row in masked], mask, 0, None)
    tokens = batch.tokens.copy()
    for row, call in enumerate(calls):
        # The block's places are masked only to arrange the batch; now they get the tokens of the plain loop's step.
        tokens[row, batch.start : batch.start + len(call.places)] = call.tokens[call.places]
    logits = {}
    for dtype, model in pair.models.items():
        with jax.enable_x64(dtype == "float64"), jax.default_matmul_precision("highest"):
            network = pair.family.token_network(model)
            run = CompiledProgram(partial(network.predict, count=batch.block), FAST_COMPILE)
            output = np.asarray(run(network.weights(), tokens, batch.visible, batch.positions, np.int32(batch.start)))
        logits[dtype] = np.concatenate([output[row, : len(call.places)] for row, call in enumerate(calls)])
    truth = np.concatenate([call.logits for call in calls])
    single = [pair.reference("float32", call.tokens[None], call.read[None])[0, call.places] for call in calls]
    comparison.add("logits of the block program", lambda: logits["float64"], truth)
    comparison.add_single("logits of the block program", lambda: logits["float32"], np.concatenate(single), truth)


def _prompts(size: int, mask: int) -> list[Array]:
    """Prompts of different lengths, with gaps in the first two."""
    rng = np.random.default_rng(SEED)
    texts = [rng.integers(0, size, length) for length in (7, 4, 2)]
    texts = [np.where(text == mask, (mask + 1) % size, text).astype(np.int32) for text in texts]
    texts[0][[1, 2, 4]] = texts[1][3] = mask
    return texts


class _Small(TokenNetwork):
    """The small network; see :func:`_small_formula`."""

    def weights(self) -> None:
        return None

    def predict(self, weights: Any, tokens: Any, visible: Any, positions: Any, first: Any, count: int) -> Any:
        logits = _small_formula(jnp, tokens, visible, positions)
        return jax.lax.dynamic_slice_in_dim(logits, first, count, axis=1)


def _small_logits(tokens: Array, read: Array) -> Array:
    logits: Array = _small_formula(np, tokens[None], read[None], np.arange(len(tokens))[None])[0]
    return logits


def _small_formula(xp: Any, tokens: Any, visible: Any, positions: Any) -> Any:
    """Logits (B, N, V) from tokens in any order: each depends on all tokens that are read and on their positions."""
    rng, width = np.random.default_rng(1), 6
    embedding, mixing, out = (rng.standard_normal(shape) for shape in ((WORDS, width), (width, width), (width, WORDS)))
    angles = positions[..., None] * (1.0 + np.arange(width))
    x = xp.asarray(embedding)[tokens] + xp.sin(angles)
    read = visible[..., None] * xp.tanh(x @ mixing)
    return (xp.tanh(x) + xp.sum(read, axis=1, keepdims=True) / 3.0) @ out
