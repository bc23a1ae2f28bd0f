"""Random numbers in training mode, replaced on both sides by what does not depend on the layout of a model.

Dropout multiplies every value by a factor that depends on it and on the rate alone, and that changes slowly where the
value is large: a network with several would amplify the rounding of large values otherwise. A mask with one number per
sample, or one for the whole batch, as in stochastic depth, needs no layout: both sides compare the rate with the same
uniform numbers, whether a dropout with such a noise shape draws them, a Bernoulli distribution, or a uniform one, as in
``floor(keep + uniform)``. All masks of a step come from the same numbers, so the order of the draws does not matter.
Other draws remain random.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

import jax
import jax.numpy as jnp
import keras
import numpy as np

from wdport.recording.torch_functions import functions

if TYPE_CHECKING:
    import torch

NEAR: Final = 1e-5
"""How near to a rate, to 0 and to 1 there are numbers."""

GOLDEN: Final = (5**0.5 - 1) / 2
"""Multiples of it, modulo 1, leave no large gap."""


class SampleDraws:
    """The uniform numbers of a step, one per sample of ``batch``.

    Attributes:
        numbers: those that PyTorch's side draws from.
        in_torch: how often PyTorch's side has drawn since this was set to 0, as far as its rates are known not to be 0.
        in_port: the same of the port, since :meth:`use`.
    """

    def __init__(self, batch: int) -> None:
        self.batch, self.in_torch, self.in_port = batch, 0, 0
        self._rates: dict[float, None] = {}
        self.numbers = self._in_port = np.zeros(batch)
        self.step(0)

    def step(self, index: int) -> None:
        """Choose the numbers of a step: one below and one above all rates; the others are next to every known rate in
        turn, and then anywhere."""
        near = [abs(side - rate) + sign * NEAR for side in (0.0, 1.0) for rate in self._rates for sign in (-1, 1)]
        places = [index * (self.batch - 2) + place for place in range(self.batch - 2)]
        first, *others = [near[place] if place < len(near) else (place + 0.77) * GOLDEN % 1.0 for place in places]
        self.numbers = np.array([first, NEAR, 1.0 - NEAR, *others])

    def use(self, numbers: Any) -> None:
        """Draw from these numbers in the port, whose program may be traced with them as an argument."""
        self._in_port, self.in_port = numbers, 0

    def fits(self, shape: Sequence[int]) -> bool:
        """Whether an array of random numbers has one per sample, or one in all."""
        return all(size == 1 for size in shape[1:]) and (not len(shape) or shape[0] in (1, self.batch))

    def for_torch(self, shape: Sequence[int], rate: Any = None) -> torch.Tensor:
        """Uniform numbers of a shape that :meth:`fits`, to compare with a rate, if that is known."""
        import torch

        self.in_torch += self._can_drop(rate)
        numbers: torch.Tensor = _shaped(torch.from_numpy(self.numbers), shape, self.batch)
        return numbers

    def for_port(self, shape: Sequence[int], seed: object, rate: Any = None) -> Any:
        """The same for the port."""
        self.in_port += self._can_drop(rate)
        numbers = jnp.asarray(self._in_port)
        # With a fixed seed, all steps have the same mask, which PyTorch never has: others drop other samples.
        return _shaped(numbers[::-1] if isinstance(seed, int) else numbers, shape, self.batch)

    def _can_drop(self, rate: Any) -> bool:
        """Whether any rate may be other than 0 and 1; remembers those that are known."""
        if rate is None or isinstance(rate, jax.core.Tracer):
            return True
        values = np.unique(np.asarray(rate.detach() if hasattr(rate, "detach") else rate, np.float64))
        between = [round(float(value), 9) for value in values if 0.0 < value < 1.0]
        self._rates.update(dict.fromkeys(between))
        return bool(between)


def _shaped(numbers: Any, shape: Sequence[int], batch: int) -> Any:
    """The numbers of all samples, or the first one, in this shape."""
    return (numbers if tuple(shape[:1]) == (batch,) else numbers[:1]).reshape(tuple(shape))


@contextmanager
def repeatable(draws: SampleDraws) -> Iterator[None]:
    """Replace dropout, and what is drawn for whole samples, on both sides."""
    import torch

    with ExitStack() as patched:
        for name, replacement in _torch_dropouts(draws).items():
            patched.enter_context(patch.object(torch.nn.functional, name, replacement))
        patched.enter_context(functions(_torch_draws(draws)))
        patched.enter_context(repeatable_port(draws))
        yield


@contextmanager
def repeatable_port(draws: SampleDraws) -> Iterator[None]:
    """The same in the port alone."""
    with ExitStack() as patched:
        for name, replacement in _keras_draws(draws).items():
            patched.enter_context(patch.object(keras.src.backend.random, name, replacement))
        patched.enter_context(patch.object(keras.layers.AlphaDropout, "call", _alpha))
        yield


def _torch_dropouts(draws: SampleDraws) -> dict[str, Callable[..., Any]]:
    import torch

    def like_torch(wave: Callable[[Any], Any], *, alpha: bool = False) -> Callable[..., Any]:
        def replaced(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
            if not (training and p):
                return input
            if not alpha and draws.fits(input.shape):
                return input * _kept(draws.for_torch(input.shape, p), p)
            return input * (1.0 + p * wave(input))

        return replaced

    def attention(
        query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, *rest: Any, **named: Any
    ) -> Any:
        if not dropout_p:
            return unchanged(query, key, value, attn_mask, dropout_p, *rest, **named)
        # The weights of attention are what it computes of the unit vectors.
        units = torch.eye(key.shape[-2], dtype=query.dtype).expand(*key.shape[:-1], -1)
        weights = unchanged(query, key, units, attn_mask, 0.0, *rest, **named)
        return like_torch(value_wave)(weights, dropout_p) @ value

    def value_wave(input: Any) -> Any:
        return input.asinh().sin()

    def feature_wave(input: Any) -> Any:
        return input.asinh().cos()

    unchanged = torch.nn.functional.scaled_dot_product_attention
    features = {name: like_torch(feature_wave) for name in ("dropout1d", "dropout2d", "dropout3d")}
    waves = {"alpha_dropout": torch.tanh, "feature_alpha_dropout": torch.arctan}
    return {"dropout": like_torch(value_wave), **features, "scaled_dot_product_attention": attention,
            **{name: like_torch(wave, alpha=True) for name, wave in waves.items()}}  # fmt: skip


def _kept(numbers: Any, rate: float) -> Any:
    """The factor of every sample for dropout."""
    return (numbers >= rate) * (0.0 if rate >= 1.0 else 1.0 / (1.0 - rate))


def _torch_draws(draws: SampleDraws) -> Callable[[Callable[..., Any], tuple[Any, ...], Mapping[str, Any]], object]:
    """An answer for :func:`wdport.recording.torch_functions.functions`."""

    def answer(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> object:
        drawn = function(*args, **kwargs)
        name = getattr(function, "__name__", "")
        if name not in ("bernoulli", "bernoulli_", "rand", "rand_like", "uniform_") or not draws.fits(drawn.shape):
            return drawn
        if name.startswith("bernoulli"):
            # The probabilities of torch.bernoulli are its input.
            default = 0.5 if name.endswith("_") else args[0]
            keep = args[1] if len(args) > 1 else kwargs.get("p")
            rate = 1.0 - (default if keep is None else keep)
            return drawn.copy_(draws.for_torch(drawn.shape, rate) >= rate)
        low, high = 0.0, 1.0
        if name == "uniform_":
            limits = {"from": low, "to": high, **dict(zip(("from", "to"), args[1:], strict=False)), **kwargs}
            low, high = limits["from"], limits["to"]
        return drawn.copy_(low + (high - low) * draws.for_torch(drawn.shape))

    return answer


def _keras_draws(draws: SampleDraws) -> dict[str, Callable[..., Any]]:
    backend = keras.src.backend.random
    uniform, binomial = backend.uniform, backend.binomial

    def dropout(inputs: Any, rate: float, noise_shape: Any = None, seed: Any = None) -> Any:
        sizes = noise_shape or (None,) * inputs.ndim
        shape = [length if size is None else size for size, length in zip(sizes, inputs.shape, strict=True)]
        if rate and draws.fits(shape):
            return inputs * jnp.asarray(_kept(draws.for_port(shape, seed, rate), rate), inputs.dtype)
        return _like_keras(inputs, rate, noise_shape, seed)

    def uniformly(shape: Any, minval: float = 0.0, maxval: float = 1.0, dtype: Any = None, seed: Any = None) -> Any:
        if not draws.fits(shape):
            return uniform(shape, minval, maxval, dtype, seed)
        numbers = minval + (maxval - minval) * draws.for_port(shape, seed)
        return numbers.astype(dtype or keras.config.floatx())

    def binomially(shape: Any, counts: Any, probabilities: Any, dtype: Any = None, seed: Any = None) -> Any:
        if not draws.fits(shape) or isinstance(counts, jax.core.Tracer) or np.any(np.asarray(counts) != 1):
            return binomial(shape, counts, probabilities, dtype, seed)
        rate = 1.0 - probabilities
        return (draws.for_port(shape, seed, rate) >= rate).astype(dtype or keras.config.floatx())

    return {"dropout": dropout, "uniform": uniformly, "binomial": binomially}


def _value_wave(inputs: Any) -> Any:
    return jnp.sin(jnp.arcsinh(inputs))


def _feature_wave(inputs: Any) -> Any:
    return jnp.cos(jnp.arcsinh(inputs))


def _like_keras(
    inputs: Any, rate: float, noise_shape: Any, seed: Any = None,
    waves: Sequence[Callable[[Any], Any]] = (_value_wave, _feature_wave),
) -> Any:  # fmt: skip
    # A noise shape with sizes of 1 drops whole features.
    shared = noise_shape is not None and any(size == 1 for size in noise_shape[1:])
    if isinstance(seed, int) or (noise_shape is not None and noise_shape[0] == 1):
        # One mask for all steps or all samples, which PyTorch never has.
        rate = -rate
    return inputs * (1.0 + rate * waves[shared](inputs))


def _alpha(layer: Any, inputs: Any, training: bool = False) -> Any:
    if not (training and layer.rate):
        return inputs
    return _like_keras(inputs, layer.rate, layer.noise_shape, waves=(jnp.tanh, jnp.arctan))
