"""Samples recorded from the public implementation: the port's scan, and our reference with plain loops, against them.

Truth is float64: our torch reference through plain loops, from the recorded x_T and noise. The float64 port agrees
to 1e-10 (it reaches 1e-14); the float32 port is no further from it than 8 times the recording is.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import pywt

import wdport
from parity_tests.test_golden import NAMES, read_arrays
from wdport.checkpoint import open_checkpoint
from wdport.compare.gate_bounds import NUMERICS, TRAJECTORY
from wdport.compare.measure import relative_l2
from wdport.diffusion.reference_samplers import ddim_states, ddim_step_list, ddpm_states
from wdport.diffusion.schedules import NoiseSchedule, step_list
from wdport.families.waveletdiff.family import FAMILY
from wdport.recorder import run

Array = np.ndarray[Any, Any]


class Recorded:
    """One recording with its checkpoint: the port in two dtypes, and the reference as a function of arrays."""

    def __init__(self, name: str, golden: Path, folder: Path) -> None:
        self.name = name
        self.arrays = read_arrays(golden / f"{name}.golden.npz")
        output = folder / f"{name}.keras"
        self.config = wdport.convert(golden / NAMES[name], output, config=golden / f"{name}.config.yaml").config
        with open_checkpoint(golden / NAMES[name]) as checkpoint:
            tensors = {key: checkpoint.read(key) for key in checkpoint.tensors}
        self.schedule = NoiseSchedule(*(tensors[f"{part}_all"].astype(np.float64) for part in NoiseSchedule._fields))
        module = FAMILY.build_reference(self.config, tensors, "float64")
        self.network: Callable[[Array, Array], Array] = lambda x, time: run(module, (x, time))[0]
        self.single = wdport.load_model(output)
        with jax.enable_x64(True):
            self.double = wdport.load_model(output, dtype="float64")

    def series(self, coefficients: Array) -> Array:
        """By PyWavelets, in float64."""
        groups = [coefficients[:, part] for part in self.config.level_slices]
        return np.asarray(pywt.waverec(groups, self.config.wavelet, mode="symmetric", axis=1))[:, : self.config.seq_len]


@pytest.fixture(scope="module", params=NAMES)
def recorded(request: pytest.FixtureRequest, golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return Recorded(request.param, golden, tmp_path_factory.mktemp("samples"))


@pytest.mark.parametrize(
    ("name", "steps", "eta"), [("ddim10_eta05", 10, 0.5), pytest.param("ddim20", 20, 0.0, marks=pytest.mark.full)]
)
def test_ddim(recorded: Recorded, name: str, steps: int, eta: float) -> None:
    arrays = recorded.arrays
    init, tape, listed = arrays["sample_init"], arrays.get(f"{name}_noise"), arrays[f"{name}_timesteps"]
    assert step_list(steps).tolist() == ddim_step_list(steps) == listed.tolist()
    slots = np.zeros((0, *init.shape)) if tape is None else tape
    loops = ddim_states(recorded.network, recorded.schedule, recorded.config.prediction_target, listed,
                        init.astype(np.float64), eta, slots)  # fmt: skip
    against_loops(recorded, name, loops[-1], init, tape, sampler="ddim", steps=steps, eta=eta)


@pytest.mark.parametrize("recorded", [next(iter(NAMES))], indirect=True)  # recorded for the first alone
def test_ddpm(recorded: Recorded) -> None:
    init, tape = recorded.arrays["sample_init"][:1], recorded.arrays["ddpm_noise"]
    loops = ddpm_states(recorded.network, recorded.schedule, recorded.config.prediction_target, range(1000, 0, -1),
                        init.astype(np.float64), tape)  # fmt: skip
    against_loops(recorded, "ddpm", loops[-1], init, tape, sampler="ddpm")


def against_loops(recorded: Recorded, name: str, truth: Array, init: Array, tape: Array | None, **chosen: Any) -> None:
    """Both ports' samples, and the recorded ones, against the float64 ``truth``."""
    double, single = (
        wdport.sample(model, init=init, noise=tape, **chosen) for model in (recorded.double, recorded.single)
    )
    assert double.coefficients.dtype == np.float64
    assert single.coefficients.dtype == np.float32
    assert relative_l2(double.coefficients, truth) <= TRAJECTORY
    public = {"coeffs": truth, "series": recorded.series(truth)}
    ours = {"coeffs": single.coefficients, "series": single.series}
    exact = {"coeffs": double.coefficients, "series": double.series}
    for kind, values in public.items():
        assert relative_l2(exact[kind], values) <= TRAJECTORY
        if f"{name}_{kind}" in recorded.arrays:
            theirs = relative_l2(recorded.arrays[f"{name}_{kind}"], values)
            assert theirs < 1e-3
            assert relative_l2(ours[kind], values) <= NUMERICS * theirs
