"""The Keras layers, equal to PyWavelets on both backends; lengths of transforms, and which one has given lengths."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import keras
import numpy as np
import pytest
import pywt
from hypothesis import given, reject
from hypothesis import strategies as st

from wdport.uses.wavelets import WaveletDecomposition, WaveletReconstruction, candidates
from wdport.uses.wavelets.lengths import (
    BOUNDARY_MODES,
    auto_level,
    auto_wavelet,
    filter_length,
    group_lengths,
    series_lengths,
)

ROOT = Path(__file__).parents[3]
SCRIPT = "import sys; from tests.uses.wavelets.test_layers import require_pywts; require_pywts(sys.argv[1])"


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def require_pywts(backend: str) -> None:
    assert keras.backend.backend() == backend
    x = draw(3, 24, 2)
    truth = np.concatenate(pywt.wavedec(x.astype(np.float64), "db2", level=3, axis=1), axis=1)
    coefficients = WaveletDecomposition(24)(x)
    back = WaveletReconstruction(24)(coefficients)
    np.testing.assert_allclose(keras.ops.convert_to_numpy(coefficients), truth, atol=2e-6)
    np.testing.assert_allclose(keras.ops.convert_to_numpy(back), x, atol=2e-6)


def test_equal_to_pywt() -> None:
    require_pywts("jax")


def test_equal_to_pywt_on_the_other_backend() -> None:
    environment = {**os.environ, "KERAS_BACKEND": "torch"}
    subprocess.run([sys.executable, "-c", SCRIPT, "torch"], check=True, env=environment, cwd=ROOT)


def test_float32_under_a_mixed_policy() -> None:
    layer = WaveletDecomposition(24, dtype="mixed_bfloat16")
    assert layer.compute_dtype == "float32"
    assert keras.backend.standardize_dtype(layer(draw(1, 24, 1)).dtype) == "float32"


def test_saved_and_loaded(tmp_path: Path) -> None:
    inputs = keras.Input((24, 2))
    outputs = WaveletReconstruction(24, "db4", "reflect", 2)(WaveletDecomposition(24, "db4", "reflect", 2)(inputs))
    model = keras.Model(inputs, outputs)
    assert outputs.shape == (None, 24, 2)
    model.save(tmp_path / "a.keras")
    again = keras.saving.load_model(tmp_path / "a.keras")
    x = draw(2, 24, 2)
    np.testing.assert_array_equal(again(x), model(x))
    np.testing.assert_allclose(again(x), x, atol=2e-6)


def test_wrong_length_names_the_layer() -> None:
    with pytest.raises(ValueError, match=r"was given shape \(1, 23, 1\); give \(..., 24, F\)"):
        WaveletDecomposition(24)(draw(1, 23, 1))


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


WAVELETS = pywt.wavelist(kind="discrete")


def transformed(seq_len: int, wavelet: str, level: int, mode: str) -> tuple[int, ...]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # levels beyond dwt_max_level are allowed
        return tuple(map(len, pywt.wavedec(np.zeros(seq_len), wavelet, mode=mode, level=level)))


@given(st.integers(2, 300), st.sampled_from(WAVELETS), st.integers(1, 7), st.sampled_from(pywt.Modes.modes))
def test_groups_are_as_long_as_pywt_makes_them(seq_len: int, wavelet: str, level: int, mode: str) -> None:
    try:
        wanted = transformed(seq_len, wavelet, level, mode)
    except ValueError:
        assert "reflect" in mode  # which needs two values at every level
        reject()
    assert group_lengths(seq_len, wavelet, level, mode) == wanted


@pytest.mark.parametrize("wavelet", ["haar", "db2", "db4", "db6", "db8", "bior2.2", "sym5", "coif3", "dmey"])
@pytest.mark.parametrize("mode", ["symmetric", "periodization", "zero"])
def test_every_short_length(wavelet: str, mode: str) -> None:
    for seq_len in (*range(2, 70), 128):
        assert group_lengths(seq_len, wavelet, 3, mode) == transformed(seq_len, wavelet, 3, mode)


def test_every_filter_length() -> None:
    assert {name: filter_length(name) for name in WAVELETS} == {n: pywt.Wavelet(n).dec_len for n in WAVELETS}


@pytest.mark.parametrize("name", ["db0", "", "DB2", "morl", "mexh", "db2 ", "auto"])
def test_an_unknown_wavelet_is_a_value_error(name: str) -> None:
    for call in (filter_length, lambda wavelet: group_lengths(24, wavelet, 3), lambda w: auto_level(24, w)):
        with pytest.raises(ValueError, match="is not a discrete wavelet"):
            call(name)


@given(st.integers(1, 10**6), st.sampled_from(WAVELETS))
def test_the_automatic_level_is_pywts_between_three_and_seven(seq_len: int, wavelet: str) -> None:
    deepest = pywt.dwt_max_level(seq_len, pywt.Wavelet(wavelet).dec_len)
    assert auto_level(seq_len, wavelet) == int(np.clip(deepest, 3, 7))


@pytest.mark.parametrize("wavelet", ["haar", "db2", "db4", "db8"])
def test_the_automatic_level_where_it_changes(wavelet: str) -> None:
    taps = pywt.Wavelet(wavelet).dec_len
    for power in range(2, 10):
        for seq_len in ((taps - 1) * 2**power + shift for shift in (-1, 0, 1)):
            assert auto_level(seq_len, wavelet) == int(np.clip(pywt.dwt_max_level(seq_len, taps), 3, 7))


def test_the_automatic_wavelet_follows_the_length() -> None:
    changes = {1: "db2", 24: "db2", 32: "db2", 33: "db4", 64: "db4", 65: "db6", 128: "db6", 129: "db8", 10**6: "db8"}
    assert {seq_len: auto_wavelet(seq_len) for seq_len in changes} == changes


@given(st.integers(1, 60), st.sampled_from(WAVELETS), st.integers(0, 7), st.sampled_from(pywt.Modes.modes))
def test_every_series_of_given_groups_is_found(seq_len: int, wavelet: str, level: int, mode: str) -> None:
    """Against trying all lengths."""
    groups = group_lengths(seq_len, wavelet, level, mode)
    reach = 2 * max(groups) + 2
    assert series_lengths(groups, wavelet, mode) == [
        n for n in range(1, reach) if group_lengths(n, wavelet, level, mode) == groups
    ]


def test_groups_of_a_thousand_million_take_no_time() -> None:
    assert series_lengths(group_lengths(10**9, "db2", 3), "db2") == [10**9 - 1, 10**9]
