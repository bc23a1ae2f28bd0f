"""Samples with known values: kept exactly, under every sampler and both targets; the rest fits them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from wdport.base.errors import InputError, UsageError
from wdport.models.interface import Diffused
from wdport.uses.diffusion.diffusion import Diffusion
from wdport.uses.diffusion.schedules import noise_schedule, per_mille, step_list
from wdport.uses.sampling.condition import read_known, resampling, with_known
from wdport.uses.sampling.network import Network
from wdport.uses.sampling.sampler import Programs, Sampler, Samples, plan_of
from wdport.uses.waveletdiff.config import Config
from wdport.uses.waveletdiff.family import FAMILY
from wdport.uses.wavelets.transform import WaveletTransform

LENGTH, FEATURES = 24, 2
TRANSFORM = WaveletTransform(LENGTH, "db2", "symmetric", 3)
SCHEDULE = noise_schedule("exponential")
MEAN, STD = np.array([10.0, -3.0]), np.array([2.0, 0.5])
TOLD = {"norm_mean": MEAN.tolist(), "norm_std": STD.tolist()}
STEPS = np.arange(LENGTH)
COVARIANCE = np.exp(-0.5 * ((STEPS[:, None] - STEPS) / 3.0) ** 2) + 1e-3 * np.eye(LENGTH)
"""Of every feature's smooth series in z-score space."""


def process(target: str) -> Diffusion:
    return Diffusion(SCHEDULE, target, per_mille(1000), step_list)


def about(target: str, **changes: Any) -> Diffused:
    """What the family says of such a model."""
    told = {"noise": "noise", "sample": "coefficient"}[target]
    values: dict[str, Any] = {"wavelet": "db2", "seq_len": LENGTH, "boundary_mode": "symmetric",
                              "prediction_target": told, **TOLD}  # fmt: skip
    return FAMILY.diffused(Config(TRANSFORM.level_lengths, FEATURES, 4, 2, 1, 4, **(values | changes)))


def network(target: str, dtype: str = "float64", **changes: Any) -> Network:
    """The best possible network for that data, and series in the units of the data."""
    analysis = TRANSFORM.analysis_matrix
    sizes, axes = np.linalg.eigh(analysis @ COVARIANCE @ analysis.T)
    sizes = np.clip(sizes, 0.0, None)[:, None]

    def apply(weights: Any, x: Any, time: Any, labels: Any = None) -> Any:
        bar = jnp.asarray(SCHEDULE.alpha_bar)[jnp.rint(time * 1000).astype(int)][:, None, None]
        shares = bar**0.5 * sizes / (bar * sizes + 1.0 - bar)
        clean = jnp.einsum("cd,bdf->bcf", axes, shares * jnp.einsum("cd,bcf->bdf", axes, x))
        return clean if target == "sample" else (x - bar**0.5 * clean) / (1.0 - bar) ** 0.5

    def finish(weights: Any, state: Any) -> Any:
        return state, TRANSFORM.reconstruct(state) * STD + MEAN

    facts = about(target, **changes)
    return Network(apply, finish, lambda: (), lambda: process(target), dtype, facts)


def gap() -> np.ndarray:
    """A series with six unknown steps in one feature and one in the other."""
    rng = np.random.default_rng(1)
    known = np.linalg.cholesky(COVARIANCE) @ rng.standard_normal((LENGTH, FEATURES)) * STD + MEAN
    known[9:15, 0] = known[3, 1] = np.nan
    return known


def drawn(conditioned: Network, count: int, *settings: Any) -> Samples:
    return Sampler(Programs(conditioned), plan_of(conditioned, *settings)).run(np.arange(count))


@pytest.mark.parametrize("target", ["noise", "sample"])
@pytest.mark.parametrize(
    "settings", [("ddim", 10, 0.5, 2), ("dpm++2m", 10), ("heun", 6), ("euler", 50)], ids=lambda s: s[0]
)
def test_known_values_are_kept_exactly(target: str, settings: tuple[Any, ...]) -> None:
    known = gap()
    mask = np.isfinite(known)
    samples = drawn(with_known(network(target), known), 3, *settings)
    assert samples.series is not None
    assert np.array_equal(samples.series[:, mask], np.broadcast_to(known[mask], (3, mask.sum())))
    assert np.ptp(samples.series[:, ~mask], axis=0).min() > 1e-3
    from_coefficients = np.asarray(TRANSFORM.synthesis_matrix @ samples.coefficients) * STD + MEAN
    np.testing.assert_allclose(from_coefficients, samples.series, atol=1e-9)


def test_what_is_filled_in_fits_what_is_known() -> None:
    """Against the exact conditional mean: every step ten times."""
    known = gap()
    mask = np.isfinite(known[:, 0])
    weights = COVARIANCE[np.ix_(~mask, mask)] @ np.linalg.inv(COVARIANCE[np.ix_(mask, mask)])
    exact = weights @ ((known[mask, 0] - MEAN[0]) / STD[0])
    series = drawn(with_known(network("noise"), known), 128, "ddim", 50, 0.0, 10).series
    assert series is not None
    filled = (series[:, ~mask, 0].mean(axis=0) - MEAN[0]) / STD[0]
    prior = np.sqrt(np.mean(exact**2))
    assert np.sqrt(np.mean((filled - exact) ** 2)) < 0.2 * prior


def test_nothing_known_changes_nothing() -> None:
    plain, free = network("noise"), with_known(network("noise"), np.full((LENGTH, FEATURES), np.nan))
    one, other = (drawn(each, 2, "ddim", 10, 0.5).coefficients for each in (plain, free))
    np.testing.assert_allclose(one, other, atol=1e-9)


@pytest.mark.parametrize(("known", "changes", "expected"), [
    (np.zeros((LENGTH, 1)), {}, "has shape (24, 1); give (24, 2): time steps, features"),
    (np.full((LENGTH, FEATURES), np.inf), {}, "has infinite values; give NaN for unknown values"),
    (gap() * 0.0 + 1e30, {}, "known: has a value 2e+30 standard deviations from the mean; give it in the units"),
    ([[1.0], [1.0, 2.0]], {}, "known: is not an array; give time steps by features"),
    (gap() * 1j, {}, "known: holds complex128, not real numbers"),
    (gap().astype(str), {}, "known: holds <U32, not real numbers"),
    (gap(), {"wavelet": None}, "the model does not know its wavelet"),
])  # fmt: skip
def test_the_impossible_is_refused(known: Any, changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(UsageError) as raised:
        with_known(network("noise", **changes), known)
    assert expected in str(raised.value)


def test_resampling_belongs_to_what_is_known() -> None:
    assert resampling(None, False) == 1
    assert resampling(None, True) == 5
    assert resampling(3, True) == 3
    with pytest.raises(UsageError, match="resample: has no effect without known values"):
        resampling(3, False)


def test_known_values_from_files(tmp_path: Path) -> None:
    known = gap()
    np.save(tmp_path / "a.npy", known)
    np.savetxt(tmp_path / "a.csv", known, delimiter=",")
    lines = (tmp_path / "a.csv").read_text().splitlines()
    (tmp_path / "dated.csv").write_text(
        "\n".join(["date,a,b", *(f"2020-01-{i + 1:02},{x}" for i, x in enumerate(lines))])
    )
    for name in ("a.npy", "a.csv", "dated.csv"):
        np.testing.assert_array_equal(read_known(tmp_path / name), known)
    # as pandas writes them: gaps are empty, even a whole column of them
    known[:, 1] = np.nan
    rows = [",".join("" if np.isnan(x) else repr(float(x)) for x in row) for row in known]
    (tmp_path / "gaps.csv").write_text(
        "\n".join(["date,a,b", *(f"2020-01-{i + 1:02},{x}" for i, x in enumerate(rows))])
    )
    np.testing.assert_array_equal(read_known(tmp_path / "gaps.csv"), known)
    (tmp_path / "na.txt").write_text("1.0 NA\n2.0 3.0\n")
    np.testing.assert_array_equal(read_known(tmp_path / "na.txt"), [[1.0, np.nan], [2.0, 3.0]])
    (tmp_path / "text.csv").write_text("a,b\n1.0,2.0\n1.0,x\n")
    with pytest.raises(
        InputError, match=r"line 3: column 'b' holds 'x'.*; give time steps by features, NaN or nothing"
    ):
        read_known(tmp_path / "text.csv")
    np.savez(tmp_path / "two.npz", a=known, b=known)
    with pytest.raises(InputError, match=r"; give time steps by features"):
        read_known(tmp_path / "two.npz")
    with pytest.raises(InputError, match="no such file"):
        read_known(tmp_path / "b.npy")
    (tmp_path / "a.bin").write_bytes(b"1")
    with pytest.raises(InputError, match="unknown kind"):
        read_known(tmp_path / "a.bin")
