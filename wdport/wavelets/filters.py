"""The four filters of a wavelet, from PyWavelets."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from wdport.errors import UsageError
from wdport.mapping.arrays import Array
from wdport.wavelets.lengths import filter_length


@dataclass(frozen=True, eq=False)
class FilterBank:
    """Decomposition and reconstruction filters, low-pass and high-pass, (Lf,) each, float64; Lf is even."""

    dec_lo: Array
    dec_hi: Array
    rec_lo: Array
    rec_hi: Array

    @property
    def length(self) -> int:
        """Lf, taps per filter."""
        return len(self.dec_lo)


@lru_cache
def filter_bank(wavelet: str) -> FilterBank:
    """The filters of one of PyWavelets' 106 discrete wavelets; raises :class:`UsageError` for another name."""
    import pywt

    try:
        filter_length(wavelet)
    except (ValueError, TypeError):
        fix = 'use one of pywt.wavelist(kind="discrete"), such as db2'
        raise UsageError("wavelet", f"{wavelet!r} is not a discrete wavelet of PyWavelets", fix) from None
    return FilterBank(*(np.asarray(taps, dtype=np.float64) for taps in pywt.Wavelet(wavelet).filter_bank))
