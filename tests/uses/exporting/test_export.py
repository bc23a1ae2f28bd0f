"""What was exported runs where neither wdport nor Keras can be imported, and gives what wdport gives here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np
import pytest

import wdport
from tests.make import TINY, inputs
from tests.schemas.held import hold
from tests.uses.sampling.toy import SHAPE, toy_network
from wdport.base.jax_settings import fast_compile
from wdport.uses.exporting import loader
from wdport.uses.exporting.artifact import export_target, write_artifact
from wdport.uses.exporting.lowering import Lowered, Lowering, lower_denoiser, lower_sampler
from wdport.uses.sampling.network import Network
from wdport.uses.sampling.sampler import Programs, Sampler, plan_of, programs_of

EVERYWHERE = ("cpu", "cuda", "tpu")
FAST: dict[str, Any] = {"sampler": "ddim", "steps": 10, "eta": 0.5}
ULPS = 16
"""Of float32, relative to the largest value: the operations are the same, but they are compiled as another program,
whose sums XLA may order and fuse otherwise. Seen: 2 for the denoiser, 0 for the sampler."""


@pytest.fixture(scope="module")
def model(converted: Path) -> Any:
    return wdport.load_model(converted)


@pytest.fixture(scope="module")
def folder(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model's denoiser and a sampler, for three platforms each."""
    folder = tmp_path_factory.mktemp("artifacts")
    wdport.export(model, folder / "denoiser.stablehlo", platforms=EVERYWHERE)
    wdport.export(model, folder / "sampler.stablehlo", what="sampler", platforms=EVERYWHERE, **FAST)
    return folder


def close(found: Any, wanted: Any) -> None:
    assert found.dtype == wanted.dtype == np.float32
    np.testing.assert_allclose(found, wanted, rtol=0, atol=ULPS * np.finfo(np.float32).eps * np.abs(wanted).max())


def called(model: Any, state: Any, time: Any) -> Any:
    """The Keras model's own prediction, in one program: eagerly every operation would be compiled."""
    program = jax.jit(lambda *inputs: model(inputs, training=False), compiler_options=fast_compile())
    return np.asarray(program(state.astype("f4"), time.astype("f4")))


PACKAGES = ("jax", "jaxlib", "numpy", "numpy.libs", "scipy", "scipy.libs", "ml_dtypes", "opt_einsum", "flatbuffers")
"""jax with what it needs itself, and flatbuffers."""

PRELUDE = """
import importlib.util, json, sys
folder, packages, work = sys.argv[1:]
sys.path[:0] = [packages, folder]
import numpy as np
from loader import load
"""
ENDING = """
np.savez(f"{work}/made.npz", **{name: np.asarray(values) for name, values in made.items()})
known = [name for name in ("wdport", "keras", "torch", "h5py", "pywt") if importlib.util.find_spec(name)]
loaded = [name for name in sys.modules if name.split(".")[0] in ("wdport", "keras")]
print(json.dumps({"known": known + loaded, "facts": facts}))
"""
ALONE = """
denoiser, sampler = load(f"{work}/denoiser.stablehlo"), load(f"{work}/sampler.stablehlo")
with np.load(f"{work}/inputs.npz") as given:
    made = {"prediction": denoiser(given["state"], given["time"])}
    made["coefficients"], made["series"] = sampler(3, [5, 0, 7])
    made["taped"], _ = sampler.start_from(given["init"], given["tape"])
facts = sampler.facts["model"]
"""


def run_alone(code: str, folder: Path, work: Path, **variables: str) -> dict[str, Any]:
    """What a program that sets ``made`` and ``facts`` prints in a Python without site packages (-I -S), and beside them
    a folder that has jax and what jax needs."""
    site, packages = Path(jax.__file__).parents[1], folder / "packages"
    packages.mkdir()
    for name in PACKAGES:
        if (site / name).exists():
            (packages / name).symlink_to(site / name)
    shutil.copy(loader.__file__, folder / "loader.py")
    command = [sys.executable, "-I", "-S", "-c", PRELUDE + code + ENDING, str(folder), str(packages), str(work)]
    variables["JAX_COMPILATION_CACHE_DIR"] = str(jax.config.jax_compilation_cache_dir)
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | variables)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_it_runs_with_jax_alone(model: Any, folder: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    state, time = inputs(TINY)
    init, tape = rng.standard_normal((3, *state.shape[1:])), rng.standard_normal((10, 3, *state.shape[1:]))
    np.savez(folder / "inputs.npz", state=state, time=time, init=init, tape=tape)
    said = run_alone(ALONE, tmp_path, folder)
    assert said["known"] == []
    assert said["facts"] == json.loads(json.dumps(model.config.to_dict()))
    with np.load(folder / "made.npz") as made:
        close(made["prediction"], called(model, state, time))
        programs = programs_of(model)
        plan = plan_of(programs.network, FAST["sampler"], FAST["steps"], FAST["eta"])
        drawn = Sampler(programs, plan, seed=3).run(np.array([5, 0, 7]))
        close(made["coefficients"], drawn.coefficients)
        close(made["series"], drawn.series)
        close(made["taped"], wdport.sample(model, init=init, noise=tape, **FAST).coefficients)


def test_one_program_has_the_code_of_every_platform(folder: Path) -> None:
    for name, programs in (("denoiser", ["denoise"]), ("sampler", ["drawn", "given"])):
        with zipfile.ZipFile(folder / f"{name}.stablehlo") as archive:
            for program in programs:
                program_bytes = archive.read(f"{program}.program")
                for file in (keras.__file__, jax.__file__, wdport.__file__):  # folders may be private
                    assert str(Path(file).parents[1]).encode() not in program_bytes
                held = jax.export.deserialize(bytearray(program_bytes))
                assert held.platforms == EVERYWHERE
                assert "b" in str(held.in_avals[-1].shape)
            facts = json.loads(archive.read("facts.json"))
            hold("export-facts", facts, closed=False)  # with the family's own sizes
    assert facts["platforms"] == list(EVERYWHERE)
    assert (facts["sampler"]["name"], len(facts["sampler"]["steps"]), facts["sampler"]["slots"]) == ("ddim", 11, 10)


def test_a_program_for_elsewhere_is_refused_here(tmp_path: Path) -> None:
    path = tmp_path / "elsewhere.stablehlo"
    wrote(path, toy_network(), lower_denoiser(toy_network(), Lowering(("cuda",), None, "highest")), "cuda")
    with pytest.raises(loader.ArtifactError, match="was exported for cuda, this device is cpu; export it again"):
        loader.load(path)


def wrote(path: Path, network: Network, lowered: Lowered, platform: str = "cpu", **facts: Any) -> Path:
    """The artifact of a toy network."""
    common = {"what": "denoiser", "platforms": [platform], "batch": None, "coefficients": SHAPE[0],
              "features": SHAPE[1], "dtype": network.dtype}  # fmt: skip
    write_artifact(export_target(path), {**common, **facts}, lowered.programs, lowered.arrays)
    return path


@pytest.mark.parametrize("batch", [None, 4])
def test_float64_over_several_segments(tmp_path: Path, batch: int | None) -> None:
    """101 rows are two segments; 64 bits whatever the program around has set."""
    network = toy_network("float64")
    plan = plan_of(network, "ddim", 100, 0.7)
    lowered = lower_sampler(network, plan, Lowering(("cpu",), batch, "highest"))
    facts = {"name": "ddim", "slots": plan.slots}
    path = wrote(tmp_path / "a.stablehlo", network, lowered, what="sampler", sampler=facts, batch=batch)
    found, runner = loader.load(path), Sampler(Programs(network), plan, 9)
    wanted = runner.run(np.arange(4))
    assert not jax.config.jax_enable_x64
    coefficients, series = (np.asarray(made) for made in found(9, np.arange(4)))
    assert coefficients.dtype == np.float64
    np.testing.assert_allclose(coefficients, wanted.coefficients, rtol=1e-12, atol=1e-12)
    assert np.array_equal(series, 2.0 * coefficients)
    rng = np.random.default_rng(0)
    init, tape = rng.standard_normal((4, *SHAPE)), rng.standard_normal((plan.slots, 4, *SHAPE))
    given, _ = found.start_from(init, tape)
    np.testing.assert_allclose(given, runner.run(np.arange(4), init, tape).coefficients, rtol=1e-12, atol=1e-12)
    if batch:
        with pytest.raises(ValueError, match=r"indices are not integers of shape \(4,\)"):
            found(9, [1, 2])


def test_a_sampler_without_noise_takes_no_tape(tmp_path: Path) -> None:
    network = toy_network()
    plan = plan_of(network, "heun", 10)
    lowered = lower_sampler(network, plan, Lowering(("cpu",), None, "highest"))
    path = wrote(tmp_path / "a.stablehlo", network, lowered, what="sampler", sampler={"name": "heun", "slots": 0})
    found, init = loader.load(path), np.ones((2, *SHAPE))
    close(np.asarray(found.start_from(init)[0]), Sampler(Programs(network), plan).run(np.arange(2), init).coefficients)
    for seed in (1.5, -1, 2**32):
        with pytest.raises(ValueError, match=f"invalid seed {seed}: expected an integer from 0 to 2"):
            found(seed, [0])
    with pytest.raises(ValueError, match="this sampler takes no slots of noise"):
        found.start_from(init, init[None])


def test_weights_keep_their_dtypes(tmp_path: Path) -> None:
    """bfloat16 is no dtype of numpy's own files."""
    arrays = [np.arange(6, dtype=np.float32).reshape(2, 3), np.asarray(jax.numpy.full((3,), 1.5, "bfloat16")),
              np.asarray(np.float32(2.0)), np.array([True, False])]  # fmt: skip
    lowered = lower_denoiser(toy_network(), Lowering(("cpu",), None, "highest"))
    path = wrote(tmp_path / "a.stablehlo", toy_network(), Lowered(lowered.programs, arrays))
    for found, wanted in zip(loader.load(path)._weights, arrays, strict=True):
        assert found.dtype == wanted.dtype
        assert np.array_equal(np.asarray(found), wanted)


def test_inputs_of_a_denoiser(folder: Path) -> None:
    denoiser, state = loader.load(folder / "denoiser.stablehlo"), np.ones((2, 26, 3))
    assert np.array_equal(denoiser(state, np.ones(2, int)), denoiser(state, np.ones(2)))
    with pytest.raises(ValueError, match=r"state has shape \(2, 25, 3\), not \(b, 26, 3\)"):
        denoiser(np.zeros((2, 25, 3)), np.zeros(2))
    with pytest.raises(ValueError, match=r"time has shape \(3,\), not \(2\)"):
        denoiser(np.zeros((2, 26, 3)), np.zeros(3))
