"""Transform series of mixed lengths, padded, in one batch and one compiled program.

For every length n its matrices W_n and R_n are embedded in zeros, level by level, and stacked; a series selects its own
by index. That is exact: values beyond the end of a series have weight zero. Padding the *signal* to a common length
instead would change its boundary, with an error as large as the signal.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array as Tensor
from numpy.typing import ArrayLike

from wdport.base.errors import UsageError
from wdport.models.interface import Array
from wdport.uses.wavelets.plan import TransformPlan, make_plan
from wdport.uses.wavelets.transform import WaveletTransform


@dataclass(frozen=True)
class RaggedWaveletTransform:
    """The transform of series of any of ``lengths``, padded to the longest, N.

    Args:
        lengths: the lengths that may occur, each once.
        wavelet: as in :class:`WaveletTransform`.
        mode: as in :class:`WaveletTransform`.
        level: stages, the same for all; None for the automatic one of the longest.

    Coefficients (B, C, F) are laid out as those of the longest series; a shorter series fills the beginning of each
    group, see :meth:`mask`. Everything else is zero and is ignored by the inverse.
    """

    lengths: tuple[int, ...]
    wavelet: str = "db2"
    mode: str = "symmetric"
    level: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "lengths", tuple(self.lengths))
        if not self.lengths or len(set(self.lengths)) != len(self.lengths):
            raise UsageError("lengths", f"{list(self.lengths)} are not different lengths", "give each length once")
        # The automatic level depends on the length; a batch needs one for all.
        object.__setattr__(self, "level", self.longest.level)

    @property
    def longest(self) -> WaveletTransform:
        """The transform of the longest series, whose layout the coefficients have."""
        return WaveletTransform(max(self.lengths), self.wavelet, self.mode, self.level)

    def decompose(self, x: Array | Tensor, lengths: ArrayLike) -> Tensor:
        """Transform series (B, N, F), valid up to their ``lengths`` (B,), to coefficients (B, C, F)."""
        which, inside = self._which(lengths), jnp.arange(self.longest.length) < jnp.asarray(lengths)[:, None]
        coefficients: Tensor = _apply(self, 0, self._checked("x", x, lengths, self.longest.length), which, inside)
        return coefficients

    def reconstruct(self, c: Array | Tensor, lengths: ArrayLike) -> Tensor:
        """Transform coefficients (B, C, F) to series (B, N, F), zero beyond the length of each."""
        c = self._checked("c", c, lengths, self.longest.coefficients)
        series: Tensor = _apply(self, 1, c, self._which(lengths), self.mask(lengths))
        return series

    def mask(self, lengths: ArrayLike) -> Tensor:
        """(B, C) bool: the coefficients that a series of each of ``lengths`` has."""
        return jnp.asarray(_stack(self)[2])[self._which(lengths)]

    def _which(self, lengths: ArrayLike) -> Tensor:
        """The index of each length in ``self.lengths``; concrete lengths that are not in it are refused."""
        # Traced values are unknown here: within jit, a length that is not in the list selects another one's matrices.
        if not isinstance(lengths, jax.core.Tracer):
            unknown = sorted(set(np.asarray(lengths).tolist()) - set(self.lengths))
            if unknown:
                what = f"{unknown[0]} is not one of the transform's {len(self.lengths)} lengths"
                raise UsageError("lengths", what, "make the transform for every length that occurs")
        order = np.argsort(self.lengths)
        place = jnp.searchsorted(jnp.asarray(np.asarray(self.lengths)[order]), jnp.asarray(lengths))
        return jnp.asarray(order)[place]

    def _checked(self, name: str, x: Array | Tensor, lengths: ArrayLike, size: int) -> Tensor:
        x, count = jnp.asarray(x), jnp.asarray(lengths).shape
        if x.ndim != 3 or x.shape[1] != size or count != x.shape[:1]:
            what = f"has shape {tuple(x.shape)} for lengths of shape {tuple(count)}"
            raise UsageError(name, what, f"give (B, {size}, F) and B lengths")
        return x.astype(jnp.promote_types(x.dtype, jnp.float32))


@lru_cache(maxsize=16)
def _stack(transform: RaggedWaveletTransform) -> tuple[Array, Array, Array]:
    """W (n, C, N), R (n, N, C) and mask (n, C) over all lengths, zero-embedded, float64."""
    longest = transform.longest
    total, size, count = longest.coefficients, longest.length, len(transform.lengths)
    analysis, synthesis = np.zeros((count, total, size)), np.zeros((count, size, total))
    mask = np.zeros((count, total), dtype=bool)
    for i, length in enumerate(transform.lengths):
        plan = make_plan(length, transform.wavelet, transform.mode, transform.level)
        places = _places(plan, longest.plan)
        analysis[i, places, :length] = plan.analysis()
        # Transposed: NumPy moves the axis of an index array to the front where a slice separates it from another index.
        synthesis[i, :length, places] = plan.synthesis().T
        mask[i, places] = True
    return analysis, synthesis, mask


def _places(plan: TransformPlan, longest: TransformPlan) -> Array:
    """Indices of a shorter plan's coefficients in the layout of the longest."""
    starts = [part.start for part in longest.level_slices]
    return np.concatenate([start + np.arange(size) for start, size in zip(starts, plan.level_lengths, strict=True)])


@partial(jax.jit, static_argnums=(0, 1))
def _apply(transform: RaggedWaveletTransform, which: int, x: Tensor, index: Tensor, inside: Tensor) -> Tensor:
    matrices = jnp.asarray(_stack(transform)[which].astype(x.dtype))[index]
    clean = jnp.where(inside[..., None], x, 0)  # NaN times zero would be NaN
    return jnp.einsum("bij,bjf->bif", matrices, clean, precision=jax.lax.Precision.HIGHEST)
