"""A generation as one compiled program; every setting is an argument of it."""

from __future__ import annotations

from os import PathLike
from typing import Any
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array as Tensor

from wdport.diffusion.unmasking import Refined, UnmaskingSettings, refine, windows
from wdport.errors import UsageError
from wdport.families.registry import family_of_model
from wdport.families.roles import Completing, TokenNetwork, Tree
from wdport.generation.prompts import Arranged, Words, words_of
from wdport.jax_settings import Option, fast_run, weakly
from wdport.model import KerasModel, Vocabulary


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
