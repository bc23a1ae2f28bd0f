"""Recordings of the public implementation: the port and our reference against them, layer by layer.

Float64: every recorded activation to 1e-10 (a correct port reaches 1e-14). Float32: no further from
the float64 recording than 8 times the public implementation itself is.
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
from wdport.checkpoint import open_checkpoint
from wdport.compare.gate_bounds import LOGIC, NUMERICS, TRAJECTORY
from wdport.compare.measure import like, relative_l2
from wdport.compare.probe import Probe
from wdport.compare.taps import align
from wdport.conversion.load import open_converted
from wdport.mapping.table import choose_table
from wdport.models.keras_runtime import layers_by_path
from wdport.recording.runs import module_names, record, run
from wdport.uses.diffusion.reference_samplers import ddim_states, ddim_step_list, ddpm_states
from wdport.uses.diffusion.schedules import NoiseSchedule, step_list
from wdport.uses.waveletdiff.family import FAMILY

NAMES = {
    "etth1-seq24-db2": "etth1-seq24-db2.ckpt",
    "stocks-seq64-db4": "stocks-seq64-db4.pt",
    "exchange-seq24-qknorm": "exchange-seq24-qknorm.ckpt",
}
UNIT_ROUNDOFF = 2.0**-24


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an npz file, which is closed again."""
    with np.load(path) as file:
        return dict(file)


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    """All tensors of a checkpoint."""
    with open_checkpoint(path) as checkpoint:
        return {name: checkpoint.read(name) for name in checkpoint.tensors}


class Case:
    """One recording, the file that it was made from, and its conversion."""

    def __init__(self, name: str, golden: Path, folder: Path) -> None:
        self.checkpoint = golden / NAMES[name]
        self.single = read_arrays(golden / f"{name}.golden.npz")
        self.double = read_arrays(golden / f"{name}.golden64.npz")
        self.output = folder / f"{name}.keras"
        self.conversion = wdport.convert(self.checkpoint, self.output, config=golden / f"{name}.config.yaml")
        self.activations = {key[4:]: self.double[key] for key in self.double if key.startswith("act/")}

    @property
    def inputs(self) -> tuple[np.ndarray, np.ndarray]:
        return self.single["x_t"].astype(np.float64), self.single["t"] / 1000.0

    def tensors(self) -> dict[str, np.ndarray]:
        return read_tensors(self.checkpoint)


@pytest.fixture(scope="session", params=NAMES)
def case(request: pytest.FixtureRequest, golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(request.param, golden, tmp_path_factory.mktemp("golden"))


def recordings(*names: str) -> Any:
    """These recordings; `make parity` takes the others, too."""
    every = [name if name in names else pytest.param(name, marks=pytest.mark.full) for name in NAMES]
    return pytest.mark.parametrize("case", every, indirect=True)


def port_activations(case: Case) -> tuple[np.ndarray, dict[str, Any]]:
    """Output and every tapped layer of the float64 port, by torch module path."""
    tensors = case.tensors()
    config = open_converted(case.output).config
    modules = module_names(FAMILY.build_reference(config, tensors, "float64"))
    with jax.enable_x64(True):
        model = wdport.load_model(case.output, dtype="float64")
        taps = align(choose_table(tensors, "golden"), modules, layers_by_path(model), FAMILY.features(config))
        (output,), recorded = Probe(model, [tap.candidate for tap in taps]).record(case.inputs)
    return output, {tap.reference: recorded[tap.candidate].outputs for tap in taps}


def named(activations: dict[str, Any]) -> dict[str, np.ndarray]:
    """Activations under the recording's names: a module with a list of outputs has one name for each."""
    found: dict[str, np.ndarray] = {}
    for name, values in activations.items():
        found |= {name: values[0]} if len(values) == 1 else {f"{name}[{i}]": value for i, value in enumerate(values)}
    return found


def test_port_float64(case: Case) -> None:
    assert case.conversion.assumed == {}
    output, activations = port_activations(case)
    assert relative_l2(output, case.double["output"]) <= LOGIC
    ours = named(activations)
    assert set(case.activations) - set(ours) == set()
    errors = {name: relative_l2(like(ours[name], value), value) for name, value in case.activations.items()}
    assert len(errors) > 150
    assert {name: error for name, error in errors.items() if not error <= LOGIC} == {}


def test_reference_float64(case: Case) -> None:
    module = FAMILY.build_reference(open_converted(case.output).config, case.tensors(), "float64")
    (output,), calls = record(module, case.inputs)
    assert relative_l2(output, case.double["output"]) <= LOGIC
    ours = named({name: call.outputs for name, call in calls.items()})
    errors = {name: relative_l2(like(ours[name], value), value) for name, value in case.activations.items()}
    assert {name: error for name, error in errors.items() if not error <= LOGIC} == {}


@pytest.mark.parametrize("side", ["port", "reference"])
def test_float32(case: Case, side: str) -> None:
    """Output and every recorded activation, through the whole network."""
    inputs = (case.single["x_t"], (case.single["t"] / 1000.0).astype(np.float32))
    config, tensors = open_converted(case.output).config, case.tensors()
    module = FAMILY.build_reference(config, tensors, "float32")
    if side == "reference":
        (output,), calls = record(module, inputs)
        ours = named({name: call.outputs for name, call in calls.items()})
    else:
        model = wdport.load_model(case.output)
        modules = module_names(module)
        taps = align(choose_table(tensors, "golden"), modules, layers_by_path(model), FAMILY.features(config))
        (output,), recorded = Probe(model, [tap.candidate for tap in taps]).record(inputs)
        ours = named({tap.reference: recorded[tap.candidate].outputs for tap in taps})
    ours |= {"": output}
    exact = case.activations | {"": case.double["output"]}
    ratios = {}
    for name, truth in exact.items():
        public = case.single[f"act/{name}"] if name else case.single["output"]
        own = np.linalg.norm(like(ours[name], truth).astype(np.float64) - truth)
        theirs = np.linalg.norm(public.astype(np.float64) - truth)
        ratios[name] = own / max(theirs, UNIT_ROUNDOFF * np.linalg.norm(truth))
    assert {name: ratio for name, ratio in ratios.items() if not ratio <= NUMERICS} == {}


@recordings("stocks-seq64-db4")
def test_verify_passes(case: Case) -> None:
    verdict = wdport.verify(case.checkpoint, case.output)
    assert [gate for gate in verdict.gates if not gate.passed] == []
    assert verdict.exit_code == 0
    assert all(level.decoded is not None and level.decoded <= LOGIC for level in verdict.parts)


@recordings("stocks-seq64-db4")
def test_the_training_loss_and_its_gradients(case: Case) -> None:
    """The public code's loss and the gradient by every parameter, lifted to float64: to 1e-10 each."""
    from wdport.conversion.prepare import Settings, prepare
    from wdport.models.keras_runtime import exact_float64, set_variable, variables_by_path
    from wdport.uses.diffusion.loss import RandomBatch
    from wdport.uses.waveletdiff.loss import diffusion_loss

    with prepare(
        case.checkpoint, Settings(config=case.checkpoint.with_name(f"{case.output.stem}.config.yaml"))
    ) as made:
        plan, config = made.plan, made.config
        tensors = {name: made.checkpoint.read(name) for name in made.checkpoint.tensors}
    constants = FAMILY.constants(config)
    with jax.enable_x64(True), jax.default_matmul_precision("highest"), exact_float64():
        model = FAMILY.build(config, "float64")
        named = variables_by_path(model)
        for path, array in plan.apply(tensors.__getitem__, rounded=False):
            set_variable(named[path], array)
        for move in plan.moves:
            for source in set(move.sources) & set(plan.checks):  # in float64, as in the recording
                set_variable(named[move.targets[0]], constants[plan.checks[source]].values)
        loss = diffusion_loss(config, constants["noise_schedule.alpha_bar"].values)
        clean = case.single["x0"].astype(np.float64)
        drawn = RandomBatch(case.single["noise"].astype(np.float64), (case.single["train_t"] + 0.5) / 1000)

        @jax.jit
        @jax.value_and_grad
        def total(values: Any) -> Any:
            fixed = [variable.value for variable in model.non_trainable_variables]
            given, _ = model.stateless_call(values, fixed, list(loss.noisy(clean, drawn)))
            return loss.total(loss.errors(given, clean, drawn))

        found, slopes = total([variable.value for variable in model.trainable_variables])
    assert abs(float(found) - float(case.double["train_loss"])) <= 1e-10 * float(case.double["train_loss"])
    places = {id(variable): path for path, variable in named.items()}
    ours = {places[id(variable)]: np.asarray(slope)
            for variable, slope in zip(model.trainable_variables, slopes, strict=True)}  # fmt: skip
    scale = np.sqrt(np.mean(np.concatenate([each.ravel() for each in ours.values()]) ** 2))
    compared = 0
    for move in plan.moves:
        if not all(f"grad/{name}" in case.double for name in move.sources):
            continue
        theirs = move.apply([case.double[f"grad/{name}"] for name in move.sources])
        for path, array in zip(move.targets, theirs, strict=True):
            size = max(float(np.linalg.norm(array)), 1e-3 * scale * array.size**0.5)
            assert np.linalg.norm(ours[path] - array) <= 1e-10 * size
            compared += 1
    assert compared == len(ours)


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
        self.target = {"coefficient": "sample"}.get(self.config.prediction_target, self.config.prediction_target)
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
    loops = ddim_states(recorded.network, recorded.schedule, recorded.target, listed,
                        init.astype(np.float64), eta, slots)  # fmt: skip
    against_loops(recorded, name, loops[-1], init, tape, sampler="ddim", steps=steps, eta=eta)


@pytest.mark.full
@pytest.mark.parametrize("recorded", [next(iter(NAMES))], indirect=True)  # recorded for the first alone
def test_ddpm(recorded: Recorded) -> None:
    init, tape = recorded.arrays["sample_init"][:1], recorded.arrays["ddpm_noise"]
    loops = ddpm_states(recorded.network, recorded.schedule, recorded.target, range(1000, 0, -1),
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
