"""Experiments of today's public training script, with a scale condition, against their recordings.

Float64: outputs, embeddings and losses to 1e-10. Float32: no further from float64 than 8 times the recording is.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import wdport
from parity_tests.test_golden import UNIT_ROUNDOFF, read_arrays, read_tensors
from wdport.compare.gate_bounds import LOGIC, NUMERICS
from wdport.compare.measure import relative_l2
from wdport.conversion.load import open_converted
from wdport.recording.float64 import lifted
from wdport.recording.runs import run
from wdport.uses.data.series import read_series
from wdport.uses.data.transforms import WindowStatistics, transform_of, windows_of
from wdport.uses.diffusion.noise import min_snr_law
from wdport.uses.waveletdiff.family import FAMILY

NAMES = ("stocks-atr24", "stocks-atr-coef")


class Experiment:
    """An experiment's folder, its recordings, and its conversion with the data that it was trained on."""

    def __init__(self, name: str, golden: Path, folder: Path) -> None:
        self.folder, self.data = golden / name, golden.parent / "data" / "stocks" / "stock_data.csv"
        self.single = read_arrays(golden / f"{name}.golden.npz")
        self.double = read_arrays(golden / f"{name}.golden64.npz")
        self.conversion = wdport.convert(self.folder, folder / f"{name}.keras", data=self.data, transform="ohlc-atr")
        self.output = self.conversion.output

    @cached_property
    def model(self) -> Any:
        return wdport.load_model(self.output)

    @cached_property
    def double_model(self) -> Any:
        with jax.enable_x64(True):
            return wdport.load_model(self.output, dtype="float64")

    @property
    def inputs(self) -> tuple[np.ndarray, ...]:
        return tuple(self.single[name].astype(np.float64) for name in ("x_t", "t", "scale"))

    def tensors(self) -> dict[str, np.ndarray]:
        return read_tensors(self.folder)


@pytest.fixture(scope="session", params=NAMES)
def experiment(request: pytest.FixtureRequest, golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    return Experiment(request.param, golden, tmp_path_factory.mktemp("atr"))


def test_the_port_in_float64(experiment: Experiment) -> None:
    x, t, scale = experiment.inputs
    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        model = experiment.double_model
        made = np.asarray(jax.jit(model)((x, t / 1000.0, scale)))
        embedded = {"time_embedding": model.time_embedding(t / 1000.0),
                    "scale_embedding": model.scale_embedding(jax.numpy.log1p(10.0 * scale))}  # fmt: skip
    assert relative_l2(made, experiment.double["output"]) <= LOGIC
    for name, value in embedded.items():
        assert relative_l2(np.asarray(value), experiment.double[f"act/{name}"]) <= LOGIC


def test_the_port_in_float32_with_and_without(experiment: Experiment) -> None:
    model = jax.jit(experiment.model)
    x, _, scale = (each.astype(np.float32) for each in experiment.inputs)
    inputs = (x, (experiment.single["t"] / 1000.0).astype(np.float32), scale)
    truth = experiment.double["output"]
    own = np.linalg.norm(np.asarray(model(inputs)) - truth)
    theirs = np.linalg.norm(experiment.single["output"] - truth)
    assert own <= NUMERICS * max(theirs, UNIT_ROUNDOFF * np.linalg.norm(truth))
    without = experiment.single["output_without_scale"]
    np.testing.assert_allclose(model(inputs[:2]), without, rtol=0, atol=1e-5 * np.abs(without).max())
    assert np.abs(without - experiment.single["output"]).max() > 1e-2


@pytest.mark.full
def test_verify_passes(experiment: Experiment) -> None:
    verdict = wdport.verify(experiment.folder, experiment.output)
    assert [gate for gate in verdict.gates if not gate.passed] == []
    assert verdict.exit_code == 0


def test_samples_are_those_of_the_recording(experiment: Experiment) -> None:
    """The recording's own float32 error is not known, so that of a float64 run of the port stands for it."""
    single = experiment.single
    chosen: Any = {"sampler": "ddim", "steps": 20, "init": single["sample_init"], "scale": single["sample_scale"]}
    made = wdport.sample(experiment.model, **chosen)
    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        exact = wdport.sample(experiment.double_model, **chosen)
    theirs = np.linalg.norm(single["ddim20_coeffs"] - exact.coefficients)
    own = np.linalg.norm(made.coefficients - exact.coefficients)
    assert theirs < 1e-4 * np.linalg.norm(exact.coefficients)
    assert own <= NUMERICS * theirs


def test_series_and_prices_are_those_of_the_recording(experiment: Experiment) -> None:
    single, length = experiment.single, experiment.single["windows"].shape[1]
    coefficients = single["ddim20_coeffs"].astype(np.float64)
    config = open_converted(experiment.output).config
    with jax.enable_x64(True):
        series = np.asarray(FAMILY.to_series(config, coefficients))
    np.testing.assert_allclose(series, single["ddim20_series"], rtol=0, atol=2e-6 * np.abs(series).max())
    held = config.statistics
    assert held is not None
    rows = held.rows(single["window_indices"][4:7])
    transform = transform_of("ohlc-atr", length)
    anchored = {**rows, "anchors": np.full(3, 100.0)}
    for name, statistics in (("ddim20_ohlcv", rows), ("ddim20_ohlcv_anchor100", anchored)):
        back = transform.inverse(single["ddim20_series"], statistics)
        wanted = single[name]
        assert (np.abs(back - wanted).max(axis=(0, 1)) <= 1e-6 * np.abs(wanted).max(axis=(0, 1))).all()


def test_windows_statistics_and_the_way_back(experiment: Experiment) -> None:
    single = experiment.single
    length, chosen = single["windows"].shape[1], single["window_indices"]
    transform = transform_of("ohlc-atr", length)
    windows, statistics = windows_of("ohlc-atr", length, read_series(experiment.data))
    rows = statistics.rows(chosen)
    np.testing.assert_allclose(windows[chosen], single["windows"], rtol=0, atol=1e-5)
    for name, stored in (("anchors", "stats_anchors"), ("atr_pcts", "stats_atr_pcts"), ("vol_smas", "stats_vol_smas")):
        np.testing.assert_allclose(rows[name], single[stored], rtol=1e-6)
    back = transform.inverse(single["windows"], rows)
    assert (np.abs(back - single["windows_ohlcv"]).max(axis=(0, 1))
            <= 1e-6 * single["windows_ohlcv"].max(axis=(0, 1))).all()  # fmt: skip
    with jax.enable_x64(True):
        made = FAMILY.transform(open_converted(experiment.output).config)
        assert made is not None
        coefficients = np.asarray(made.decompose(single["windows"].astype(np.float64)))
    np.testing.assert_allclose(coefficients, single["windows_coefficients"], rtol=0, atol=1e-5)
    held = open_converted(experiment.output).config.statistics
    assert held is not None
    assert WindowStatistics.unpack(held.pack()).count == statistics.count == len(windows)


def test_the_law_of_the_steps(experiment: Experiment) -> None:
    law = min_snr_law(experiment.single["alpha_bar_all"].astype(np.float64))
    np.testing.assert_allclose(law, experiment.single["timestep_probabilities"], rtol=0, atol=1e-6 * law.max())


def test_the_loss_of_the_recorded_steps_and_noise(experiment: Experiment) -> None:
    """Of the port's code in float64 against the reference's output, and against the recording in float32."""
    from wdport.uses.diffusion.loss import RandomBatch
    from wdport.uses.waveletdiff.loss import diffusion_loss

    single, config = experiment.single, open_converted(experiment.output).config
    module = FAMILY.build_reference(config, experiment.tensors(), "float64")
    x, t, scale = experiment.inputs
    with lifted():
        (output,) = run(module, (x, t / 1000.0, scale))
    truth = single["noise"] if config.prediction_target == "noise" else single["x0"]
    lengths = config.level_lengths
    raw = np.array([(2.0 if at == 0 else 1.0) / length for at, length in enumerate(lengths)])
    squares = (output - truth.astype(np.float64)) ** 2
    parts = [squares[:, part].mean() for part in config.level_slices]
    by_hand = float(np.dot(raw / raw.sum(), parts))
    with jax.enable_x64(True):
        loss = diffusion_loss(config, single["alpha_bar_all"].astype(np.float64))
        # the steps of the recording, 1 to 1000, as the uniform numbers that the law of 1001 steps maps to them
        drawn = RandomBatch(*(jax.numpy.asarray(each) for each in (single["noise"].astype(np.float64), t / 1001.0)))
        errors = loss.errors(jax.numpy.asarray(output), jax.numpy.asarray(single["x0"].astype(np.float64)), drawn)
        made = float(loss.total(errors))
    assert abs(made - by_hand) <= LOGIC * by_hand
    assert abs(by_hand - float(single["loss"])) <= 1e-5 * by_hand
