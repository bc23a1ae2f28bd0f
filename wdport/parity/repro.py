"""Write and read one faulty layer: its weights, inputs, expected and actual outputs, and a script that runs it.

The script needs wdport, but neither torch nor the two compared files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wdport.base.errors import InputError, MachineError
from wdport.base.options import PathText
from wdport.compare.calls import Call, ExpectedCall, layer_of, leaves
from wdport.compare.probe import run_layer, tensors
from wdport.compare.results import Evidence, Fault
from wdport.families.registry import find_family, own_model
from wdport.families.roles import Family
from wdport.files.atomic import replacing
from wdport.files.outputs import writable
from wdport.models.interface import Array, KerasLayer
from wdport.models.keras_inputs import model_arguments
from wdport.models.keras_runtime import exact_float64, layers_by_path, set_variable, variables_by_path
from wdport.parity.verify_options import REPRO_ARRAYS, REPRO_SCRIPT

Nested = Array | list["Nested"]
"""An input of a layer: an array, or a nested list of arrays."""

Nesting = int | list["Nesting"]
"""The same nesting with 0 for every array."""

_SCRIPT = '''"""{reference} -> {candidate}: the port's layer, fed the inputs of PyTorch's."""
import pathlib
{path}
import numpy as np
import wdport.parity.repro

case = wdport.parity.repro.load({arguments})
outputs = case.run()  # edit the layer, case.layer, or its code, and run this again
for output, actual, expected in zip(outputs, case.actual, case.expected):
    error = np.linalg.norm(output - expected) / np.linalg.norm(expected)
    print("now", error, "then", np.linalg.norm(actual - expected) / np.linalg.norm(expected), "at most 1e-10")
'''


@dataclass(frozen=True)
class ReproCase:
    """One layer of a float64 port with its weights, inputs, expected outputs and actual outputs."""

    layer: KerasLayer
    inputs: tuple[Nested, ...]
    expected: tuple[Array, ...]
    actual: tuple[Array, ...]
    names: tuple[str, ...] = ()

    def run(self) -> tuple[Array, ...]:
        import jax
        import keras

        is_network = isinstance(self.layer, keras.Model) and not self.names
        inputs = model_arguments(self.layer, self.inputs) if is_network else self.inputs
        with jax.enable_x64(True), jax.default_matmul_precision("highest"), exact_float64():
            outputs = run_layer(self.layer, inputs, self.names)
        return tuple(map(np.asarray, tensors(outputs)))


def write_repro(
    folder: PathText, family: Family, config: Any, variables: Mapping[str, Array], fault: Fault, evidence: Evidence
) -> Path:
    """Write the layer of ``fault`` and the script; returns the script's path. Raises :class:`MachineError`.

    ``variables`` are the float64 port's, ``evidence`` is the run that showed the fault.
    """
    path = fault.candidate
    call = evidence.answers[path]
    actual = evidence.port[path]
    inputs = _right(call, actual) if path else evidence.inputs
    arrays: dict[str, Any] = {}
    facts = {
        "family": family.name,
        "config": config.to_dict(),
        "layer": layer_of(path),
        "inputs": _shape(inputs),
        "names": actual.names if path else (),
    }
    arrays |= {f"input {index}": np.asarray(leaf) for index, leaf in enumerate(leaves(list(inputs)))}
    arrays |= {f"expected {index}": np.asarray(leaf) for index, leaf in enumerate(call.outputs)}
    arrays |= {f"actual {index}": np.asarray(leaf) for index, leaf in enumerate(actual.outputs)}
    inside = f"{layer_of(path)}/" if path else ""
    arrays |= {f"weight {name}": array for name, array in variables.items() if name.startswith(inside)}
    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MachineError(target, f"could not be written ({error.strerror})", "give another folder") from None
    # Relative to the script, so that the folder can be moved.
    own_model_at, place = named_by(family), f"pathlib.Path(__file__).with_name({REPRO_ARRAYS!r})"
    names = {
        "reference": fault.reference or "the network",
        "candidate": path or "the network",
        "path": f"import sys\n\nsys.path.insert(0, {str(Path.cwd())!r})  # where {own_model_at['model']} is\n"
        if own_model_at else "",
        "arguments": ", ".join([place, *(f"{name}={value!r}" for name, value in own_model_at.items())]),
    }  # fmt: skip
    with replacing(*(writable(target / name, option=None) for name in (REPRO_ARRAYS, REPRO_SCRIPT))) as (data, script):
        np.savez(data, facts=np.array(json.dumps(facts)), **arrays)
        script.write_text(_SCRIPT.format(**names), encoding="utf-8")
    return target / REPRO_SCRIPT


def named_by(family: Family) -> dict[str, str]:
    """The arguments of :func:`load` for a user's own model: the table, and the function that it named."""
    table, model = getattr(family, "table", None), getattr(family, "model", None)
    return {} if table is None else {"mapping": str(Path(table.path).resolve()), "model": str(model)}


def load(path: PathText, mapping: PathText | None = None, model: str | None = None) -> ReproCase:
    """Read a file written by :func:`write_repro`; raises :class:`InputError`.

    ``mapping`` and ``model`` name a user's own model, as for :func:`wdport.verify`; the file cannot.
    """
    import jax

    try:
        # A repro comes from somebody else: its arrays must not be pickles, and it cannot name code to import.
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        facts = json.loads(str(arrays.pop("facts")))
        family = own_model(mapping, model, None, ()) or find_family(facts["family"], str(path))
        config = family.load_config(facts["config"])
    except (OSError, ValueError, KeyError) as error:
        what = f"is not a layer written by wdport ({error})"
        raise InputError(path, what, "write it again with `--repro DIR`") from None
    with jax.enable_x64(True):
        built = family.build(config, "float64")
        for name, variable in variables_by_path(built).items():
            if (value := arrays.get(f"weight {name}")) is not None:
                set_variable(variable, value)
    layer = layers_by_path(built)[facts["layer"]] if facts["layer"] else built
    expected, actual = (tuple(_part(arrays, kind)) for kind in ("expected", "actual"))
    inputs = tuple(_nested(facts["inputs"], iter(_part(arrays, "input"))))
    return ReproCase(layer, inputs, expected, actual, tuple(map(str, facts["names"])))


def _right(expected: ExpectedCall, actual: Call) -> tuple[Nested, ...]:
    """The inputs that the port's layer should have had, nested as its actual inputs."""
    inputs = leaves(list(actual.inputs))
    for index, array in expected.inputs.items():
        if index < len(inputs):
            inputs[index] = array
    values = iter(inputs)
    return tuple(_nested(_shape(list(actual.inputs)), values))


def _part(arrays: Mapping[str, Array], kind: str) -> list[Array]:
    numbered = {int(name.split()[1]): array for name, array in arrays.items() if name.startswith(f"{kind} ")}
    return [numbered[index] for index in sorted(numbered)]


def _shape(value: object) -> Nesting:
    """The nesting of lists, with 0 for an array."""
    return [_shape(item) for item in value] if isinstance(value, (list, tuple)) else 0


def _nested(shape: Nesting, values: Iterator[Array]) -> Nested:
    return [_nested(item, values) for item in shape] if isinstance(shape, list) else next(values)
