"""Series of mixed length: each one's coefficients are exactly its own transform's."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import numpy as np
import pytest
import pywt

from wdport.errors import UsageError
from wdport.wavelets import RaggedWaveletTransform

LENGTHS = (9, 24, 17)


@pytest.fixture(autouse=True)
def x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.mark.filterwarnings("ignore:Level value")
@pytest.mark.parametrize("mode", ["symmetric", "periodization", "smooth"])
def test_equal_to_pywt_length_by_length(mode: str) -> None:
    transform = RaggedWaveletTransform(LENGTHS, "db2", mode, 2)
    lengths = np.array([24, 9, 17, 9])
    x = np.random.default_rng(0).standard_normal((4, 24, 3))
    x[1, 9:], x[2, 17:] = np.nan, 1e6  # what stands beyond the end does not matter
    c = np.asarray(transform.decompose(x, lengths))
    slices = transform.longest.level_slices
    for own, series, n in zip(c, x, lengths, strict=True):
        for part, group in zip(slices, pywt.wavedec(series[:n], "db2", mode=mode, level=2, axis=0), strict=True):
            np.testing.assert_allclose(own[part][: len(group)], group, atol=1e-10)
            np.testing.assert_array_equal(own[part][len(group) :], 0.0)
    back = np.asarray(transform.reconstruct(c, lengths))
    for own, series, n in zip(back, x, lengths, strict=True):
        np.testing.assert_allclose(own[:n], series[:n], atol=1e-10)
        np.testing.assert_array_equal(own[n:], 0.0)
    np.testing.assert_array_equal(np.asarray(transform.mask(lengths)).sum(axis=1), [_size(n, mode) for n in lengths])


def _size(length: int, mode: str) -> int:
    return sum(len(group) for group in pywt.wavedec(np.zeros(length), "db2", mode=mode, level=2))


def test_one_program_for_all_lengths() -> None:
    transform = RaggedWaveletTransform(LENGTHS, level=2)
    traces = []

    @jax.jit
    def run(x: jax.Array, lengths: jax.Array) -> jax.Array:
        traces.append(1)
        return transform.decompose(x, lengths)

    for lengths in ([9, 17], [24, 24], [17, 9]):
        run(np.ones((2, 24, 1)), np.array(lengths))
    assert len(traces) == 1


def test_bad_lengths_are_refused() -> None:
    transform = RaggedWaveletTransform(LENGTHS, level=2)
    with pytest.raises(UsageError, match="lengths: 10 is not one of the transform's 3 lengths"):
        transform.decompose(np.ones((1, 24, 1)), [10])
    with pytest.raises(UsageError, match=r"x: has shape \(1, 23, 1\)"):
        transform.decompose(np.ones((1, 23, 1)), [9])
    with pytest.raises(UsageError, match=r"lengths: \[9, 9\] are not different"):
        RaggedWaveletTransform((9, 9))
