"""The transform against PyWavelets, also of mixed lengths and beyond the edges; what it does in JAX; energies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import pywt

from wdport.base.errors import UsageError
from wdport.uses.wavelets import (
    RaggedWaveletTransform,
    WaveletTransform,
    dropped_share,
    level_energies,
    off_range,
    parseval_ratio,
)
from wdport.uses.wavelets.lengths import BOUNDARY_MODES
from wdport.uses.wavelets.plan import extend

CASES = [
    (24, "db2", "symmetric", 3),
    (64, "db4", "symmetric", 3),
    (33, "bior2.2", "smooth", 2),
    (5, "db8", "antireflect", 2),
    (7, "rbio3.1", "periodization", 3),
    (16, "haar", "zero", 4),
    (50, "coif2", "antisymmetric", 1),
    (3, "sym5", "periodic", 2),
    (40, "bior3.9", "reflect", 2),
    (11, "dmey", "constant", 1),
]


@pytest.fixture(autouse=True)
def x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape)


@pytest.mark.filterwarnings("ignore:Level value")
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("method", ["matrix", "taps"])
def test_equal_to_pywt(case: tuple[Any, ...], method: str) -> None:
    length, wavelet, mode, level = case
    transform = WaveletTransform(length, wavelet, mode, level, method)
    x = draw(2, length, 3)
    groups = pywt.wavedec(x, wavelet, mode=mode, level=level, axis=1)
    assert transform.level_lengths == tuple(group.shape[1] for group in groups)
    truth = np.concatenate(groups, axis=1)
    np.testing.assert_allclose(transform.decompose(x), truth, rtol=0, atol=1e-12 * np.abs(truth).max())
    given = [draw(*group.shape) for group in groups]
    back = pywt.waverec(given, wavelet, mode=mode, axis=1)[:, :length]
    found = transform.reconstruct(np.concatenate(given, axis=1))
    np.testing.assert_allclose(found, back, rtol=0, atol=1e-12 * np.abs(back).max())


@pytest.mark.parametrize("axis", [0, 2, -3])
@pytest.mark.parametrize("method", ["matrix", "taps"])
def test_any_axis(axis: int, method: str) -> None:
    shape = [2, 3, 4]
    shape[axis] = 24
    transform, x = WaveletTransform(24, level=2, method=method), draw(*shape)
    truth = np.concatenate(pywt.wavedec(x, "db2", level=2, axis=axis), axis=axis)
    np.testing.assert_allclose(transform.decompose(x, axis), truth, atol=1e-12)
    np.testing.assert_allclose(transform.reconstruct(truth, axis), x, atol=1e-12)


@pytest.mark.parametrize("method", ["matrix", "taps"])
def test_gradient_is_the_transposed_matrix(method: str) -> None:
    transform, x = WaveletTransform(24, "db2", "symmetric", 3, method), draw(24, 2)
    v = draw(transform.coefficients, 2)
    gradient = jax.grad(lambda series: jnp.sum(transform.decompose(series) * v))(x)
    np.testing.assert_allclose(gradient, transform.analysis_matrix.T @ v, atol=1e-12)
    gradient = jax.grad(lambda c: jnp.sum(transform.reconstruct(c) * x))(v)
    np.testing.assert_allclose(gradient, transform.synthesis_matrix.T @ x, atol=1e-12)


@pytest.mark.parametrize("method", ["matrix", "taps"])
def test_jit_and_vmap(method: str) -> None:
    transform, x = WaveletTransform(24, level=2, method=method), draw(5, 24, 2)
    plain = np.asarray(transform.decompose(x))
    np.testing.assert_allclose(jax.jit(transform.decompose)(x), plain, atol=1e-14)
    np.testing.assert_allclose(jax.vmap(transform.decompose)(x), plain, atol=1e-14)
    static = jax.jit(lambda own, series: own.decompose(series), static_argnums=0)
    np.testing.assert_allclose(static(transform, x), plain, atol=1e-14)


def test_auto_takes_matrices_for_short_signals_and_taps_for_long_ones() -> None:
    assert WaveletTransform(24).by_matrix
    assert not WaveletTransform(4096).by_matrix
    x = draw(1, 300, 1)
    forms = [WaveletTransform(300, "db4", level=3, method=method).decompose(x) for method in ("matrix", "taps")]
    np.testing.assert_allclose(*forms, atol=1e-12)


def test_level_none_is_the_public_rule() -> None:
    assert WaveletTransform(24).level_lengths == (5, 5, 8, 13)
    assert WaveletTransform(24).level_names == ("cA3", "cD3", "cD2", "cD1")
    assert WaveletTransform(64, "db4").level_lengths == (14, 14, 21, 35)
    assert WaveletTransform(24) == WaveletTransform(24, level=3)


def test_level_zero_is_the_identity() -> None:
    transform, x = WaveletTransform(6, level=0), draw(6, 2)
    np.testing.assert_array_equal(transform.decompose(x), x)
    np.testing.assert_array_equal(transform.reconstruct(x), x)


def test_split_and_join() -> None:
    transform = WaveletTransform(24)
    c = draw(3, transform.coefficients, 2)
    groups = transform.split(c)
    assert [group.shape[1] for group in groups] == [5, 5, 8, 13]
    np.testing.assert_array_equal(transform.join(groups), c)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int32", "float32"])
def test_computes_in_float32(dtype: str) -> None:
    found = WaveletTransform(24).decompose(jnp.ones((1, 24, 1), dtype))
    assert found.dtype == jnp.float32


def test_float32_is_exact_to_rounding() -> None:
    x = draw(100, 24, 3)
    transform = WaveletTransform(24)
    single = np.asarray(transform.reconstruct(transform.decompose(x.astype(np.float32))))
    assert np.linalg.norm(single - x) / np.linalg.norm(x) < 5e-7


REFUSED = {
    "length: invalid value 0; give a whole number from 1": lambda: WaveletTransform(0),
    "length: invalid value 24.0": lambda: WaveletTransform(24.0),  # type: ignore[arg-type]
    "level: invalid value -1; give a whole number from 0": lambda: WaveletTransform(24, level=-1),
    "wavelet: 'db99' is not a discrete wavelet": lambda: WaveletTransform(24, "db99"),
    "wavelet: 'morl' is not a discrete wavelet": lambda: WaveletTransform(24, "morl"),
    "mode: unknown boundary mode 'mirror'": lambda: WaveletTransform(24, mode="mirror"),
    "mode: reflect cannot extend a single sample": lambda: WaveletTransform(1, "haar", "reflect", 1),
    "method: unknown method 'fast'": lambda: WaveletTransform(24, method="fast"),
    "x: has 23 samples along axis 1, not 24": lambda: WaveletTransform(24).decompose(draw(2, 23, 1)),
    "c: has 30 coefficients along axis 1, not 31": lambda: WaveletTransform(24).reconstruct(draw(2, 30, 1)),
    "x: of shape (24,) has no axis -2": lambda: WaveletTransform(24).decompose(draw(24)),
    "x: is empty": lambda: WaveletTransform(24).decompose(draw(0, 24, 1)),
    "x: is complex": lambda: WaveletTransform(24).decompose(draw(1, 24, 1) * 1j),
    "groups: are 2, the transform has 4": lambda: WaveletTransform(24).join([draw(5, 1), draw(5, 1)]),
    "cD3: has shape (4, 1)": lambda: WaveletTransform(24).join([draw(n, 1) for n in (5, 4, 8, 13)]),
}


@pytest.mark.parametrize("message", REFUSED)
def test_bad_input_names_the_argument(message: str) -> None:
    with pytest.raises(UsageError) as caught:
        REFUSED[message]()
    assert str(caught.value).startswith(message)


def test_nan_stays_with_its_series() -> None:
    x = draw(3, 24, 2)
    x[1, 0, 1] = np.nan
    found = np.isnan(WaveletTransform(24).decompose(x)).any(axis=1)
    np.testing.assert_array_equal(found, [[False, False], [False, True], [False, False]])


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


LENGTHS = (9, 24, 17)


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


@pytest.mark.parametrize("mode", [mode for mode in BOUNDARY_MODES if mode != "periodization"])
@pytest.mark.parametrize("length", [1, 2, 3, 8, 13])
@pytest.mark.parametrize("pad", [1, 5, 40])
def test_an_extension_is_pywts(mode: str, length: int, pad: int) -> None:
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
