"""`wdport verify` in environments that nobody would choose: no faulty pair passes, and every error is one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import h5py
import numpy as np
import pytest

import wdport
from tests.make import SETTINGS, make_state, save

pytestmark = pytest.mark.full

VARIABLES: dict[str, dict[str, str | None]] = {
    "backend torch": {"KERAS_BACKEND": "torch"},
    "backend tensorflow": {"KERAS_BACKEND": "tensorflow"},
    "x64": {"JAX_ENABLE_X64": "1"},
    "no such platform": {"JAX_PLATFORMS": "nonsense"},
    "products in bfloat16": {"JAX_DEFAULT_MATMUL_PRECISION": "bfloat16"},
    "no compiling": {"JAX_DISABLE_JIT": "1"},
    "NaN is an error": {"JAX_DEBUG_NANS": "1"},
    "strict promotion": {"JAX_NUMPY_DTYPE_PROMOTION": "strict"},
    "fast mathematics": {"XLA_FLAGS": "--xla_cpu_enable_fast_math=true"},
    "no such flag": {"XLA_FLAGS": "--xla_nonsense=1"},
    "four devices": {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"},
    "C locale": {"LC_ALL": "C", "PYTHONUTF8": "0"},
    "no assertions": {"PYTHONOPTIMIZE": "2"},
    "warnings are errors": {"PYTHONWARNINGS": "error"},
    "no temporary folder": {"TMPDIR": "/nonexistent"},
    "one thread": {"OMP_NUM_THREADS": "1"},
    "no home": {"HOME": None, "XDG_CACHE_HOME": None},
}
SHADOWED = ("jaxlib.py", "json.py", "keras.py", "numpy.py", "torch.py", "pip.py")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A checkpoint, its conversion, and one with another value."""
    folder = tmp_path_factory.mktemp("environments")
    checkpoint = save(folder / "a.ckpt", make_state())
    good, bad = (wdport.convert(checkpoint, folder / f"{name}.weights.h5", values=SETTINGS).output for name in "gb")
    with h5py.File(bad, "r+") as file:
        found: list[h5py.Dataset] = []
        file.visititems(lambda _, item: found.append(item) if isinstance(item, h5py.Dataset) else None)
        floats = [each for each in found if each.dtype == "float32"]
        max(floats, key=lambda each: int(each.size))[...] *= np.float32(1.001)
    return checkpoint, good, bad


def verified(
    pairs: tuple[Path, Path, Path], which: int, folder: Path, variables: Mapping[str, str | None], before: str = ":"
) -> subprocess.CompletedProcess[str]:
    """One run of the command after the shell's ``before``."""
    environment: dict[str, str] = {**os.environ, "KERAS_BACKEND": "jax"}
    for name, value in variables.items():
        environment.pop(name, None)
        environment |= {} if value is None else {name: value}
    command = [str(Path(sys.executable).with_name("wdport")), "verify", str(pairs[0]), str(pairs[which])]
    return subprocess.run(["sh", "-c", f'{before}; exec "$@"', "sh", *command], cwd=folder, env=environment,
                          capture_output=True, text=True, check=False, timeout=550)  # fmt: skip


def judge(good: subprocess.CompletedProcess[str], bad: subprocess.CompletedProcess[str]) -> None:
    """The faulty pair does not pass, and what is not a verdict is an error in one line."""
    assert bad.returncode != 0, bad.stdout
    for done in (good, bad):
        assert done.returncode in (0, 1, 2, 3, 4, 5, 6), done.stderr
        assert "Traceback" not in done.stderr
        told = [line for line in done.stderr.splitlines() if line.startswith("error:")]
        assert len(told) == (done.returncode > 1 and not done.stdout.startswith("INCOMPLETE")), done.stderr
    assert good.returncode != 1, good.stdout  # a correct pair passes, or cannot be compared there


@pytest.mark.parametrize("name", [*VARIABLES, "no mask for new files"])
def test_variables(pairs: tuple[Path, Path, Path], name: str, tmp_path: Path) -> None:
    before = ":" if name in VARIABLES else "umask 0"
    judge(*(verified(pairs, which, tmp_path, VARIABLES.get(name, {}), before) for which in (1, 2)))


@pytest.mark.parametrize("where", ["PYTHONPATH", "folder"])
def test_modules_that_shadow_others(pairs: tuple[Path, Path, Path], tmp_path: Path, where: str) -> None:
    """Those of the current folder are not imported; those of PYTHONPATH are the user's own choice, and end the run."""
    for name in SHADOWED:
        (tmp_path / name).write_text("raise SystemExit(0)")
    variables = {"PYTHONPATH": str(tmp_path)} if where == "PYTHONPATH" else {}
    good, bad = (verified(pairs, which, tmp_path, variables) for which in (1, 2))
    if where == "folder":
        judge(good, bad)
        assert good.returncode == 0
    assert "PASS" not in bad.stdout


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_a_default_dtype_in_keras_json(pairs: tuple[Path, Path, Path], tmp_path: Path, dtype: str) -> None:
    told = {"floatx": dtype, "epsilon": 1e-3, "backend": "torch", "image_data_format": "channels_first"}
    (tmp_path / "keras.json").write_text(json.dumps(told))
    judge(*(verified(pairs, which, tmp_path, {"KERAS_HOME": str(tmp_path)}) for which in (1, 2)))


def test_little_memory(pairs: tuple[Path, Path, Path], tmp_path: Path) -> None:
    """Too little for the libraries: whatever ends the run, nothing passes."""

    good, bad = (verified(pairs, which, tmp_path, {}, "ulimit -v 1048576") for which in (1, 2))
    assert good.returncode != 0
    assert bad.returncode != 0
    assert "PASS" not in good.stdout + bad.stdout
