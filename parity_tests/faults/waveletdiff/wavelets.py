"""Known bugs of wavelet transforms; all but one, which the canary has."""

from __future__ import annotations

import numpy as np

from wdport.uses.waveletdiff.canary import FILTERS_REVERSED, Matrices, WaveletFault, with_filters
from wdport.uses.wavelets.lengths import filter_length
from wdport.uses.wavelets.plan import FilterBank, make_plan
from wdport.uses.wavelets.transform import WaveletTransform

OTHER_WAVELET = {"db2": "db3", "db4": "sym4"}
OTHER_MODE = {"symmetric": "periodic"}


def _exchanged(bank: FilterBank) -> FilterBank:
    return FilterBank(bank.dec_hi, bank.dec_lo, bank.rec_hi, bank.rec_lo)


def _flipped(bank: FilterBank) -> FilterBank:
    return FilterBank(bank.dec_lo, -bank.dec_hi, bank.rec_lo, -bank.rec_hi)


def _other_wavelet(transform: WaveletTransform) -> Matrices | None:
    """Another wavelet with the same sizes: for periodization, or with filters of the same length."""
    other = OTHER_WAVELET.get(transform.wavelet)
    alike = other and filter_length(other) == filter_length(transform.wavelet)
    if not other or not (alike or transform.mode == "periodization"):
        return None
    plan = make_plan(transform.length, other, transform.mode, transform.level)
    return plan.analysis(), plan.synthesis()


def _other_mode(transform: WaveletTransform) -> Matrices | None:
    """Another boundary mode; synthesis is the same for all but periodization, which has other sizes."""
    if transform.mode == "periodization":
        return None
    other = OTHER_MODE.get(transform.mode, "symmetric")
    plan = make_plan(transform.length, transform.wavelet, other, transform.level)
    return plan.analysis(), plan.synthesis()


def _rolled(transform: WaveletTransform) -> Matrices:
    return np.roll(transform.analysis_matrix, 1, axis=1), np.roll(transform.synthesis_matrix, 1, axis=0)


def _wrong_end(transform: WaveletTransform) -> Matrices | None:
    """A stage that restores one sample too many drops the first instead of the last."""
    plan = transform.plan
    if all(stage.restored == stage.length for stage in plan.stages):
        return None
    groups = [np.eye(plan.coefficients)[part] for part in plan.level_slices]
    series = groups[0]
    for stage, detail in zip(reversed(plan.stages), groups[1:], strict=True):
        low, high = stage.synthesis()
        series = (low @ series[-stage.count :] + high @ detail)[-stage.length :]
    return transform.analysis_matrix, series


WAVELET_FAULTS = (
    FILTERS_REVERSED,
    WaveletFault("low and high exchanged", with_filters(_exchanged)),
    WaveletFault("sign of the details flipped", with_filters(_flipped)),
    WaveletFault("another wavelet", _other_wavelet),
    WaveletFault("another boundary mode", _other_mode, ("analysis",)),
    WaveletFault("rolled by one sample", _rolled),
    WaveletFault("cropped at the wrong end", _wrong_end, ("synthesis",)),
)
