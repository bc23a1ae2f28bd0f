"""Energies, with facts that PyWavelets and linear algebra tell independently."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import numpy as np
import pytest
import pywt

from wdport.wavelets import WaveletTransform, dropped_share, level_energies, off_range, parseval_ratio


@pytest.fixture(autouse=True)
def x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape)


def test_level_energies_are_those_of_pywts_series() -> None:
    transform, x = WaveletTransform(24), noise(5, 24, 2)
    groups = pywt.wavedec(x, "db2", level=3, axis=1)
    found = np.asarray(level_energies(transform, np.concatenate(groups, axis=1)))
    assert found.shape == (4, 5, 2)
    for i in range(4):
        only = [group if i == j else np.zeros_like(group) for j, group in enumerate(groups)]
        np.testing.assert_allclose(found[i], np.sum(pywt.waverec(only, "db2", axis=1) ** 2, axis=1), rtol=1e-12)


def test_symmetric_mode_is_not_parseval_and_periodization_is() -> None:
    x = noise(2000, 24, 1)
    ratio = np.mean(parseval_ratio(WaveletTransform(24), WaveletTransform(24).decompose(x)))
    assert 1.4 < ratio < 1.55
    exact = WaveletTransform(24, "db2", "periodization", 3)
    np.testing.assert_allclose(parseval_ratio(exact, exact.decompose(x)), 1.0, rtol=1e-12)


def test_synthesis_drops_seven_of_31_directions() -> None:
    transform = WaveletTransform(24)
    assert np.linalg.matrix_rank(transform.synthesis_matrix) == 24
    share = np.mean(dropped_share(transform, noise(20000, 31, 1)))
    assert share == pytest.approx(7 / 31, rel=0.01)
    null = np.linalg.svd(transform.synthesis_matrix)[2][24:]
    np.testing.assert_allclose(dropped_share(transform, null[..., None]), 1.0, rtol=1e-12)


def test_a_transformed_series_is_in_range_and_noise_is_not() -> None:
    transform = WaveletTransform(24)
    assert np.max(off_range(transform, transform.decompose(noise(10, 24, 2)))) < 1e-14
    assert np.min(off_range(transform, noise(10, 31, 2))) > 0.1


def test_zero_coefficients_have_no_share() -> None:
    assert float(dropped_share(WaveletTransform(24), np.zeros((31, 1)))[0]) == 0.0
