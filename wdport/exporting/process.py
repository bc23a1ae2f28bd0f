"""Run the programs of an artefact in a process of its own: with the loader, and without wdport, Keras and PyTorch."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from wdport.compile_cache import cache_variables
from wdport.errors import InputError, printable
from wdport.files.scratch import scratch_folder
from wdport.model import Array
from wdport.platforms import plain_environment

Call = tuple[str, Sequence[Array]]
"""The name of a program, and its inputs."""

HERE: Final = Path(__file__).parent
NEEDED: Final = ("jax", "jaxlib", "numpy", "scipy", "ml_dtypes", "opt_einsum", "flatbuffers")
"""What the loader needs, and what jax needs."""


@dataclass(frozen=True)
class Result:
    """The outputs of one call and their dtypes, of which bfloat16 is given in float32; or the reason why it failed."""

    outputs: tuple[Array, ...] = ()
    dtypes: tuple[str, ...] = ()
    error: str = ""


def run_calls(path: Path, sha256: str, calls: Sequence[Call]) -> list[Result]:
    """Run the calls of an artefact with this SHA-256; raises :class:`InputError` if it cannot be loaded."""
    with scratch_folder() as folder:
        shutil.copy(HERE / "loader.py", folder)
        (folder / "calls.json").write_text(json.dumps([program for program, _ in calls]))
        arrays: dict[str, Any] = {f"{index}.{place}": array for index, (_, inputs) in enumerate(calls)
                                  for place, array in enumerate(inputs)}  # fmt: skip
        np.savez(folder / "inputs.npz", **arrays)
        environment = {**plain_environment(), **cache_variables(), "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        command = [
            sys.executable,
            "-I",
            str(HERE / "isolated.py"),
            str(folder),
            str(path.absolute()),
            sha256,
            *_installed(),
        ]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, cwd=folder,
                              stdin=subprocess.DEVNULL, env=environment)  # fmt: skip
        if done.returncode:
            message = (done.stderr.strip().splitlines() or [f"the process ended with {done.returncode}"])[-1]
            what = message.removeprefix(f"{path.absolute()}: ").removesuffix("; export it again")
            raise InputError(path, f"does not run: {printable(what)}", "export the model again")
        results = json.loads((folder / "results.json").read_text())
        with np.load(folder / "outputs.npz") as outputs:
            return [_result(index, result, outputs) for index, result in enumerate(results)]


def _result(index: int, result: dict[str, Any], outputs: Any) -> Result:
    if "error" in result:
        return Result(error=result["error"])
    arrays = tuple(outputs[f"{index}.{place}"] for place in range(len(result["dtypes"])))
    return Result(arrays, tuple(result["dtypes"]))


def _installed() -> list[str]:
    """The folders of the packages, which an isolated Python does not find where an environment variable names them."""
    specs = (importlib.util.find_spec(name) for name in NEEDED)
    return list(dict.fromkeys(str(Path(spec.origin).parents[1]) for spec in specs if spec and spec.origin))
