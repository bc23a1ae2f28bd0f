"""Boundary extension against `pywt.pad`, which pads by at most a signal's length per call and repeats."""

from __future__ import annotations

import numpy as np
import pytest
import pywt

from wdport.errors import UsageError
from wdport.wavelets.extension import extend
from wdport.wavelets.lengths import BOUNDARY_MODES


@pytest.mark.parametrize("mode", [mode for mode in BOUNDARY_MODES if mode != "periodization"])
@pytest.mark.parametrize("length", [1, 2, 3, 8, 13])
@pytest.mark.parametrize("pad", [1, 5, 40])
def test_equal_to_pywt(mode: str, length: int, pad: int) -> None:
    if length == 1 and mode in ("reflect", "antireflect", "smooth"):
        pytest.skip("no slope to go by: reflections are refused, and pywt.pad and pywt.dwt differ on smooth")
    x = np.random.default_rng(length).standard_normal(length)
    found = extend(length, -pad, length + pad - 1, mode).matrix(length) @ x
    np.testing.assert_allclose(found, pywt.pad(x, pad, mode), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("length", [4, 5])
def test_periodization_repeats_an_odd_signals_last_sample(length: int) -> None:
    x = np.arange(1.0, length + 1)
    even = np.append(x, x[-1]) if length % 2 else x
    found = extend(length, -6, 11, "periodization").matrix(length) @ x
    np.testing.assert_array_equal(found, even[np.arange(-6, 12) % len(even)])


@pytest.mark.parametrize("mode", ["reflect", "antireflect"])
def test_a_single_sample_cannot_be_reflected(mode: str) -> None:
    with pytest.raises(UsageError, match=f"mode: {mode} cannot extend a single sample"):
        extend(1, -1, 1, mode)


def test_unknown_mode_lists_the_nine() -> None:
    with pytest.raises(UsageError, match="mode: unknown boundary mode 'mirror'; use one of zero"):
        extend(4, 0, 3, "mirror")
