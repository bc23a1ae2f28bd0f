"""`wdport.generate`: complete texts with a masked language model, in one compiled program of which every setting is an
argument."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, Final
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array as Tensor

from wdport.base.errors import UsageError
from wdport.base.jax_settings import Option, fast_run, weakly
from wdport.base.limits import MAX_STEPS
from wdport.base.options import Interval, require_within
from wdport.families.registry import family_of_model
from wdport.models.interface import Array, KerasModel, Vocabulary
from wdport.uses.diffusion.unmasking import NEVER, Refined, UnmaskingSettings, refine, windows
from wdport.uses.generation.prompts import Arranged, Words, arranged, installed, read_prompts, require_words, words_of
from wdport.uses.roles import Completing, TokenNetwork, Tree


class Generator:
    """A language model's program, compiled once for each shape of a batch."""

    def __init__(
        self, vocabulary: Vocabulary, network: TokenNetwork, wide: bool, options: dict[str, Option] | None = None
    ) -> None:
        self.vocabulary, self._network, self.wide = vocabulary, network, wide
        chosen = fast_run() if options is None else options
        # Start and block are shapes of the program; everything else is an argument, so that no setting compiles again.
        self._jitted = jax.jit(weakly(self._run), static_argnames=("start", "block"), compiler_options=chosen)

    @property
    def programs(self) -> int:
        """The number of programs compiled so far."""
        return int(self._jitted._cache_size())  # type: ignore[attr-defined]

    def mask(self, token: int | None) -> int:
        """The mask token: a given one, or the configuration's; raises :class:`UsageError`."""
        if token is not None:
            if not 0 <= token < self.vocabulary.size:
                raise UsageError("mask", f"is {token}", f"give a whole number from 0 to {self.vocabulary.size - 1}")
            return token
        if self.vocabulary.mask is None:
            raise UsageError("mask", "the model's configuration names no mask token", "give its number")
        return self.vocabulary.mask

    def run(self, batch: Arranged, settings: UnmaskingSettings, seed: int, samples: Any) -> Refined:
        """Generate for a batch whose samples have these numbers (B,): they and the seed determine the draws."""
        # A float64 model needs 64-bit arrays, whatever the process is set to.
        with jax.enable_x64(self.wide):
            number = np.float64 if self.wide else np.float32
            numbers = UnmaskingSettings(*(_number(value, number) for value in settings))
            arrays = (batch.tokens, batch.visible, batch.positions)
            refined = self._jitted(self._network.weights(), *arrays, np.int32(batch.mask), numbers, np.uint32(seed),
                                 np.asarray(samples, np.uint32), start=batch.start, block=batch.block)  # fmt: skip
            return Refined(*map(np.asarray, refined))

    def _run(
        self,
        weights: Tree,
        tokens: Tensor,
        visible: Tensor,
        positions: Tensor,
        mask: Tensor,
        settings: UnmaskingSettings,
        seed: Tensor,
        samples: Tensor,
        start: int,
        block: int,
    ) -> Refined:
        # Keys by the number of a sample, so that its text does not depend on the batch that it is in.
        keys = jax.vmap(lambda sample: jax.random.fold_in(jax.random.key(seed), sample))(samples)
        among = windows(start, tokens.shape[1] - start, block)

        def predict(prefix: Tensor, first: Tensor) -> Tensor:
            """Every given token is read, and of the wanted ones those up to the end of the block."""
            within = visible[:, : prefix.shape[1]] & (jnp.arange(prefix.shape[1]) < first + block)
            return self._network.predict(weights, prefix, within, positions[:, : prefix.shape[1]], first, block)

        return refine(predict, tokens, tokens != mask, mask, start, block, among, settings, keys)


_GENERATORS: WeakKeyDictionary[KerasModel, Generator] = WeakKeyDictionary()


def generator_of(model: KerasModel) -> Generator:
    """The generator of a Keras model, made once per model; raises :class:`UsageError` for models of other families."""
    try:
        return _GENERATORS[model]
    except (KeyError, TypeError):  # new, or not weakly referenceable, and so not a model
        family, wide = _completing(model), model.compute_dtype == "float64"
        generator = Generator(family.vocabulary(model.config), family.token_network(model), wide)
        _GENERATORS[model] = generator
        return generator


def model_words(model: KerasModel, mask: int, file: str | PathLike[str] | None) -> Words | None:
    """The tokenizer in a file, or of the model; see :func:`words_of`."""
    return words_of(model, _completing(model), mask, file)


def _completing(model: KerasModel) -> Completing:
    family = family_of_model(model)
    if not isinstance(family, Completing):
        what = f"is {type(model).__name__}" if family is None else f"a {family.name} model generates no text"
        raise UsageError("model", what, "give a masked language model from wdport.load_model") from None
    return family


def _number(value: Any, number: type[Any]) -> Any:
    """An argument of the program, whose type does not depend on how the user wrote a number."""
    array = np.asarray(value)
    # Another dtype would be another program.
    kind = number if array.dtype.kind == "f" else bool if array.dtype == bool else np.int32
    return array.astype(kind)


POSTS: Final = 16

LOGITS: Final = 1 << 26
"""Values of the logits that a batch may have by default: 256 MB in float32."""


@dataclass(frozen=True)
class Generated:
    """Completed texts.

    ``tokens`` holds one int32 array (N,) per prompt: the prompt with its masks replaced, and the tokens after it.
    ``steps`` holds arrays of the same shapes: the step that last set a token, counted from 0, and -1 for a given token.
    ``taken`` (n,) is the number of steps for each prompt, and ``calls`` the number of network calls. ``words`` is the
    tokenizer, if there is one.
    """

    tokens: list[Array]
    steps: list[Array]
    taken: Array
    calls: int
    words: Words | None = field(default=None, repr=False)

    @property
    def texts(self) -> list[str]:
        """The texts without special tokens; raises :class:`UsageError` if there was no tokenizer."""
        words = require_words(self.words, "texts")
        return [words.decode(text_tokens) for text_tokens in self.tokens]

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def wanted(self) -> int:
        """The number of tokens that were generated."""
        return int(sum((text_steps >= 0).sum() for text_steps in self.steps))

    def frames(self, index: int, mask: int) -> list[Array]:
        """The text after every step; the first has ``mask`` in place of all generated tokens. An edited token appears
        at the step that last set it."""
        tokens, steps = self.tokens[index], self.steps[index]
        return [np.where(steps < step, tokens, mask) for step in range(int(steps.max(initial=NEVER)) + 2)]


def generate(
    model: KerasModel,
    prompts: Iterable[Sequence[int] | str],
    *,
    length: int = 0,
    block_length: int | None = None,
    steps: int | None = None,
    threshold: float = 0.95,
    edit: float | None = None,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    end: int | None = None,
    forbid: Sequence[int] = (),
    mask: int | None = None,
    tokenizer: str | PathLike[str] | None = None,
    words: Words | None = None,
    seed: int = 0,
    batch: int | None = None,
) -> Generated:
    """Replace the mask tokens of prompts, and append tokens to them, with a converted masked language model.

    The tokens to generate are filled in block by block, in text order; each block attends to all given tokens, and to
    the tokens to generate up to its own end. In every step, the network predicts all tokens of a block that are still
    masked, and the most probable are kept. The rule is the one in ``BlockRefinementScheduler`` from diffusers 0.42.1.
    Different values of ``seed`` and of the arguments from ``steps`` to ``forbid`` do not trigger recompilation.

    Args:
        model: what :func:`wdport.load_model` returns.
        prompts: texts, or lists of tokens, of any length; a mask token (``[MASK]`` in a text) marks the place of a
            token to generate. All other tokens are kept.
        length: number of tokens to append to each prompt.
        block_length: number of tokens to generate per block. Default: 32, or all if ``length`` is 0.
        steps: maximum steps per block; the tokens are divided evenly among them. Default: one for every token of a
            block.
        threshold: tokens with a probability above this value are kept earlier; 1 disables this. The probability is the
            one with which tokens are drawn, after ``temperature``, ``top_k`` and ``top_p``.
        edit: probability above which a previously generated token is replaced by another. A block that is full before
            the last of its ``steps`` is edited for at most 17 more. Default: never.
        temperature: 0 takes the most probable token; with larger values, tokens are drawn from the tempered
            distribution.
        top_k: draw from this many of the most probable tokens. Default: all.
        top_p: draw from the most probable tokens that together have this probability. Default: all.
        end: token that ends a text, which is cut after it. Default: none.
        forbid: tokens that are never generated, in addition to the mask token.
        mask: the mask token. Default: that of the model's configuration.
        tokenizer: ``tokenizer.json``, or its folder, for texts. Default: the one that the model keeps from its
            checkpoint's folder.
        words: the tokenizer itself, if it has already been loaded.
        seed: 0 to 2^32 - 1. A text depends only on its prompt, the seed and its index, up to rounding.
        batch: prompts per network call. Default: chosen by the size of the logits.

    Returns:
        The texts, in the order of the prompts.

    Raises:
        UsageError: an argument is invalid; the message names it.
        InputError: the tokenizer cannot be read.
        MachineError: prompts are texts, and the tokenizers package is not installed.
    """
    generator = generator_of(model)
    vocabulary = generator.vocabulary
    require_within((0, MAX_STEPS), mask=mask, length=length)
    masked = generator.mask(mask)
    require_within((1, MAX_STEPS), block_length=block_length, steps=steps, top_k=top_k, batch=batch)
    require_within((0, (1 << 32) - 1), seed=seed)
    forbidden = {f"forbid[{index}]": token for index, token in enumerate(forbid)}
    require_within((0, vocabulary.size - 1), end=end, **forbidden)
    require_within("from 0 to 1", threshold=threshold, edit=edit, top_p=top_p)
    require_within(Interval(0, 1e6), temperature=temperature)
    for name, value in (("edit", edit), ("top_p", top_p)):
        if value == 0:
            raise UsageError(name, "is 0", "give a number above 0, or leave it out")
    if not temperature and (top_k is not None or top_p is not None):
        name = "top_p" if top_k is None else "top_k"
        raise UsageError(name, "has no effect at temperature 0", "give a temperature, or leave it out")
    if isinstance(prompts, str):
        raise UsageError("prompts", "is a text", "give a list of texts: [text]")
    prompt_list = list(prompts)
    written = tokenizer is not None or any(isinstance(prompt, str) for prompt in prompt_list)
    if words is None and (written or installed()):
        words = model_words(model, masked, tokenizer)
    tokens = [require_words(words, "prompts").encode(prompt, bool(length)) if isinstance(prompt, str) else prompt
              for prompt in prompt_list]  # fmt: skip
    texts = read_prompts(tokens, vocabulary)
    gaps = any((text == masked).any() for text in texts)
    if not length and not gaps:
        raise UsageError("prompts", f"have no mask token ({masked})", "give length, or put it where a token is wanted")
    if end is not None and gaps:
        raise UsageError("end", "would end a text in a gap of a prompt", "leave it out, or the mask tokens")
    settings = settings_of(vocabulary.size, masked, steps, threshold, edit, temperature, top_k, top_p, end, forbid)
    if settings.forbidden.all():
        raise UsageError("forbid", "leaves no token", "leave some out")
    return complete(generator, texts, masked, settings, length, block_length, seed, batch, words)


def settings_of(
    size: int, mask: int, steps: int | None, threshold: float, edit: float | None, temperature: float,
    top_k: int | None, top_p: float | None, end: int | None, forbid: Sequence[int] = (),
) -> UnmaskingSettings:  # fmt: skip
    """The program's settings from the arguments of :func:`generate`, for ``size`` tokens."""
    return UnmaskingSettings(
        steps, float(threshold), float(edit or 0.0), POSTS, float(temperature), top_k or 0,
        1.0 if top_p is None else float(top_p), NEVER if end is None else end,
        np.isin(np.arange(size), [mask, *forbid]),
    )  # fmt: skip


def complete(
    generator: Generator, texts: Sequence[Array], mask: int, settings: UnmaskingSettings, length: int = 0,
    block_length: int | None = None, seed: int = 0, batch: int | None = None, words: Words | None = None,
) -> Generated:  # fmt: skip
    """:func:`generate` for tokens and settings that were checked; ``steps`` None are those of a block."""
    arrangement = arranged(texts, mask, length, block_length)
    settings = settings._replace(steps=settings.steps or arrangement.block)
    # Logits exist for the tokens of one block at a time, and are the largest array of a step.
    rows = min(len(texts), batch or max(1, LOGITS // (arrangement.block * generator.vocabulary.size)))
    parts = []
    for first in range(0, len(texts), rows):
        part, samples, count = _part(arrangement, first, rows)
        parts.append((part, generator.run(part, settings, seed, samples), count))
    end = None if settings.end == NEVER else int(settings.end)
    return _joined(parts, end, words)


def _part(arrangement: Arranged, first: int, rows: int) -> tuple[Arranged, Array, int]:
    """``rows`` samples from ``first`` on, their numbers, and how many are not repeated ones that fill the batch."""
    last = min(first + rows, len(arrangement.tokens))
    begin = last - rows
    # The last batch begins earlier instead of being padded: one program serves all batches, and the samples that it
    # repeats are dropped.
    return arrangement[begin:last], np.arange(begin, last), last - first


def _joined(parts: Iterable[tuple[Arranged, Refined, int]], end: int | None, words: Words | None) -> Generated:
    tokens, steps, step_counts, calls = [], [], [], 0
    # The repeated samples of a batch are its first ones.
    for part, refined, count in parts:
        for text, set_at in list(zip(part.texts(refined.tokens), part.texts(refined.steps), strict=True))[-count:]:
            last = _last(text, set_at, end)
            tokens.append(text[:last])
            steps.append(set_at[:last])
        step_counts.append(refined.step_counts[-count:])
        calls += int(refined.calls)
    return Generated(tokens, steps, np.concatenate(step_counts), calls, words)


def _last(text: Array, steps: Array, end: int | None) -> int:
    """The length of a text that ends at the first generated token ``end``."""
    # A step of -1 marks a given token: a prompt may have the token `end` itself.
    ends: list[int] = [] if end is None else np.flatnonzero((text == end) & (steps >= 0)).tolist()
    return ends[0] + 1 if ends else len(text)
