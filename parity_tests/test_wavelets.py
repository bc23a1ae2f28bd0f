"""Gate F on a grid: the transform against PyWavelets, level by level, both ways; quick, and full over everything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import pywt

from wdport.base.errors import UsageError
from wdport.uses.wavelets import WaveletTransform
from wdport.uses.wavelets.check import bound, wavelet_errors, wavelet_gate
from wdport.uses.wavelets.lengths import BOUNDARY_MODES
from wdport.uses.wavelets.plan import TransformPlan

ALL = pywt.wavelist(kind="discrete")
QUICK = ["haar", "db2", "db8", "sym5", "coif2", "bior2.2", "rbio3.5"]
LENGTHS = [2, 3, 7, 16, 24, 33, 64, 101]
"""Odd and even; all but the last two or three are shorter than some filters."""


def failures(names: list[str], mode: str, lengths: list[int], method: str) -> tuple[dict[str, float], int]:
    """Cases beyond the bound, and how many were compared."""
    found, count = {}, 0
    for name in names:
        for length in lengths:
            for level in (1, 3):
                try:
                    transform = WaveletTransform(length, name, mode, level, method)
                except UsageError:
                    assert mode in ("reflect", "antireflect")  # a single sample, at some stage
                    continue
                worst = wavelet_errors(transform).worst
                count += 1
                if not worst <= bound(mode):
                    found[f"{name}, {length} samples, {level} levels"] = worst
    return found, count


@pytest.mark.parametrize("mode", BOUNDARY_MODES)
def test_matrices(mode: str) -> None:
    found, count = failures(QUICK, mode, [3, 24, 33], "matrix")
    assert found == {}
    assert count >= 36


@pytest.mark.parametrize("mode", BOUNDARY_MODES)
def test_taps(mode: str) -> None:
    found, count = failures(["db2", "bior2.2"], mode, [33], "taps")
    assert found == {}
    assert count == 4


@pytest.mark.full
@pytest.mark.parametrize("mode", BOUNDARY_MODES)
def test_matrices_everywhere(mode: str) -> None:
    found, count = failures(ALL, mode, LENGTHS, "matrix")
    assert found == {}
    assert count > 1400


@pytest.mark.full
@pytest.mark.parametrize("mode", BOUNDARY_MODES)
def test_taps_everywhere(mode: str) -> None:
    found, count = failures(ALL[::3], mode, [33], "taps")
    assert found == {}
    assert count > 60


def test_a_level_that_the_wavelet_annihilates() -> None:
    """Two samples, antisymmetric: what the third stage holds is rounding on both sides, and has to be no more."""
    transform = WaveletTransform(2, "coif12", "antisymmetric", 3)
    assert wavelet_errors(transform).worst <= bound("antisymmetric")
    matrix = transform.analysis_matrix.copy()
    matrix[transform.level_slices[0]] += 1e-11
    with wrong_matrices(matrix):
        assert wavelet_errors(transform).worst > bound("antisymmetric")


@contextmanager
def wrong_matrices(analysis: np.ndarray, synthesis: np.ndarray | None = None) -> Iterator[None]:
    """Every transform has these matrices; its own inverse where none is given."""
    from wdport.uses.wavelets import transform as module

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransformPlan, "analysis", lambda self: analysis)
        if synthesis is not None:
            patch.setattr(TransformPlan, "synthesis", lambda self: synthesis)
        module._matrices.cache_clear()
        module._cast.cache_clear()
        yield
    module._matrices.cache_clear()
    module._cast.cache_clear()


FAULTS = {
    "filters reversed": lambda w: w[:, ::-1],
    "detail's sign flipped": lambda w: np.concatenate([w[:18], -w[18:]]),
    "low-pass for high-pass": lambda w: np.concatenate([w[5:10], w[:5], w[10:]]),
    "rolled by one sample": lambda w: np.roll(w, 1, axis=1),
    "another boundary mode": lambda w: WaveletTransform(24, mode="reflect").analysis_matrix,
    "another wavelet of equal length": lambda w: WaveletTransform(24, "bior3.1").analysis_matrix,
    "one level left out": lambda w: np.concatenate([w[:10], 0 * w[10:18], w[18:]]),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("round_trip", [False, True], ids=["analysis", "self-consistent"])
def test_wrong_transforms_fail(fault: str, round_trip: bool) -> None:
    """Also where the inverse is made to match, so that the round trip is exact."""
    wrong = FAULTS[fault](WaveletTransform(24).analysis_matrix)
    with wrong_matrices(wrong, np.linalg.pinv(wrong) if round_trip else None):
        gate = wavelet_gate(WaveletTransform(24, method="matrix"))
    assert not gate.passed
    assert gate.findings
