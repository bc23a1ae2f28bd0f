"""Which wavelets and lengths give certain groups: against PyWavelets, both ways."""

from __future__ import annotations

import pytest
import pywt

from wdport.wavelets import candidates
from wdport.wavelets.lengths import BOUNDARY_MODES, group_lengths


def test_the_released_groups_belong_to_four_wavelets_and_two_lengths() -> None:
    (found,) = candidates((5, 5, 8, 13))
    assert set(found.wavelets) == {"db2", "sym2", "bior3.1", "rbio3.1"}
    assert found.lengths == (24, 23)


@pytest.mark.parametrize("mode", BOUNDARY_MODES)
@pytest.mark.parametrize(
    ("length", "wavelet", "level"), [(24, "db2", 3), (64, "db4", 3), (33, "bior2.2", 2), (7, "haar", 1)]
)
def test_the_true_answer_is_among_them_and_all_are_true(mode: str, length: int, wavelet: str, level: int) -> None:
    groups = group_lengths(length, wavelet, level, mode)
    found = candidates(groups, mode)
    assert any(wavelet in each.wavelets and length in each.lengths for each in found)
    for each in found:
        for n in each.lengths:
            assert {pywt.Wavelet(name).dec_len for name in each.wavelets} == {each.taps}
            assert group_lengths(n, each.wavelets[0], level, mode) == groups


def test_impossible_groups_have_no_candidate() -> None:
    assert candidates((5, 6, 8, 13)) == ()


def test_a_single_group_is_a_series_that_no_wavelet_touched() -> None:
    assert {each.lengths for each in candidates((24,))} == {(24,)}
