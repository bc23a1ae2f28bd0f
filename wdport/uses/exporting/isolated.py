"""A script: run an artifact with the loader alone, in a process that can import neither wdport nor Keras nor PyTorch.

``python -I isolated.py FOLDER ARTIFACT SHA256 PATH...``: FOLDER has ``loader.py``, ``calls.json``, a list of programs,
and ``inputs.npz``, the inputs CALL.POSITION of each. It gets ``results.json``, for each call its outputs' dtypes or an
error, and ``outputs.npz``. The PATHs are where jax and what it needs are installed, if not in this Python.
"""

from __future__ import annotations

import hashlib
import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

ABSENT = ("wdport", "keras", "torch", "tensorflow")
"""Packages that users of an artifact need not have."""


def main(folder: Path, artifact: str, sha256: str, paths: list[str]) -> None:
    """Run every call and write the results."""
    # None in sys.modules makes an import raise ImportError.
    sys.modules.update(dict.fromkeys(ABSENT))  # type: ignore[arg-type]
    sys.path[:0], sys.path[len(sys.path) :] = [str(folder)], paths
    import numpy as np

    with open(artifact, "rb") as file:
        # The facts and digests were read before, in the other process.
        if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
            raise ValueError("the file changed while it was verified")
    loaded: Any = import_module("loader").load(artifact)
    results: list[dict[str, Any]] = []
    outputs: dict[str, Any] = {}
    with np.load(folder / "inputs.npz") as arrays:
        for index, name in enumerate(json.loads((folder / "calls.json").read_text())):
            inputs = [arrays[f"{index}.{place}"] for place in range(sum(key.startswith(f"{index}.") for key in arrays))]
            try:
                call_outputs = _arrays(_program(loaded, name)(*inputs))
            except Exception as error:
                results.append({"error": _line(error)})
                continue
            results.append({"dtypes": [str(output.dtype) for output in call_outputs]})
            # NumPy files cannot hold bfloat16; every bfloat16 is a float32.
            wide = [
                output.astype(np.float32) if str(output.dtype) == "bfloat16" else np.asarray(output)
                for output in call_outputs
            ]
            outputs |= {f"{index}.{place}": output for place, output in enumerate(wide)}
    np.savez(folder / "outputs.npz", **outputs)
    (folder / "results.json").write_text(json.dumps(results))


def _program(loaded: Any, name: str) -> Any:
    """How users run the program of this name."""
    # The loader takes the seed as a Python integer, and the file has it as an array.
    if name == "drawn":
        return lambda seed, *rest: loaded(int(seed), *rest)
    if name == "given":
        # A sampler that adds no noise takes its condition third all the same.
        noise = () if loaded.facts["sampler"]["slots"] else (None,)
        return lambda state, *rest: loaded.start_from(state, *noise, *rest)
    return {"denoise": loaded, "call": loaded}.get(name) or loaded[name]


def _arrays(result: Any) -> list[Any]:
    return [output for output in (result if isinstance(result, tuple) else (result,)) if output is not None]


def _line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:300] or type(error).__name__


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:])
    except Exception as error:  # of the loader, or of jax, which explains at length
        sys.exit(_line(error))
