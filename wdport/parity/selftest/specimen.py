"""A correct pair of small models in files, and verdicts of `verify` on it, with and without faults in the port.

A fault of weights is written into the converted file; a fault of code is in every Keras model of the family that is
built meanwhile. The port runs eagerly, since its code differs from run to run; everything else is what users run.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch
from weakref import finalize

import jax
import numpy as np

from wdport.compare.calls import CASES, Case
from wdport.compare.layouts import axes, laid_out
from wdport.compare.probe import Probe
from wdport.compare.reference import Live
from wdport.compare.taps import align
from wdport.conversion.convert import write_arrays, write_converted
from wdport.conversion.prepare import Settings, prepare
from wdport.conversion.stream import VariableStream
from wdport.families.faults import FaultSet, Mutant
from wdport.families.roles import Family
from wdport.files.atomic import scratch_folder
from wdport.files.inputs import InputFiles
from wdport.files.model_target import choose_target
from wdport.models.interface import Array, KerasLayer, KerasModel, KerasVariable
from wdport.models.keras_runtime import layers_by_path, set_variable, variables_by_path
from wdport.parity.model_pair import family_reference
from wdport.parity.policy.judge import under
from wdport.parity.run_gates import Setup
from wdport.parity.verdict_api import Verdict
from wdport.parity.verify import compare_files
from wdport.parity.verify_options import Pair
from wdport.recording.calls import cast
from wdport.recording.conditioning import Conditioning
from wdport.recording.observation import Observation
from wdport.recording.runs import CaseSweep, run
from wdport.recording.torch_functions import highest_precision

T = TypeVar("T")
DTYPES = ("float64", "float32")
EAGER = Setup(eager=True, network=True)
"""The network, run eagerly."""

Injected = tuple[Mutant, str]
"""A fault, and the path of its layer; "" is the network."""


class Recalled(Live):
    """A live reference that runs every case once; several may share its modules."""

    def __init__(self, live: Live) -> None:
        vars(self).update(vars(live))
        self._live = live
        self._results: dict[tuple[object, ...], Any] = {}

    def _once(self, key: tuple[object, ...], compute: Callable[[], T]) -> T:
        if key not in self._results:
            self._results[key] = compute()
        result: T = self._results[key]
        return result

    def use(self, random_biases: bool) -> None:
        """As :meth:`Live.use`; only the live reference knows which weights the modules have."""
        self._live.use(random_biases)

    def include(self, numbers: Sequence[float]) -> None:
        """Do nothing: all ports run on the same inputs, which are those of a correct one."""

    def observe(self, case: Case, taps: Collection[str]) -> Observation:
        return self._once((case, tuple(taps)), partial(super().observe, case, taps))

    def conditioning(self, case: Case, dtype: str, taps: Collection[str]) -> Conditioning:
        return self._once((case, dtype, tuple(taps)), partial(super().conditioning, case, dtype, taps))

    def unused_calls(self, observation: Observation, names: Collection[str]) -> Sequence[str]:
        key = tuple(array.tobytes() for array in observation.inputs)
        return self._once((*key, *names), partial(super().unused_calls, observation, names))

    def sweep(self, names: Collection[str], times: Array) -> Mapping[str, CaseSweep]:
        """As :meth:`Live.sweep`; every call is with the same times."""
        return self._once(tuple(names), partial(super().sweep, names, times))


class Specimen:
    """A checkpoint with random weights and its conversion, in a temporary folder that goes with this object."""

    def __init__(self, name: str, faults: FaultSet, config: Any, seed: int = 0, dtype: str = "float32") -> None:
        import torch

        self.name, self.faults, self.family, self.config = name, faults, faults.family, config
        held = ExitStack()
        folder = held.enter_context(scratch_folder())
        # The folder is removed when the object is collected.
        finalize(self, held.close)
        self.checkpoint = folder / "specimen.pt"
        self.tensors = faults.random_tensors(config, seed)
        stored = {name: torch.from_numpy(array).to(getattr(torch, dtype)) for name, array in self.tensors.items()}
        torch.save(stored, self.checkpoint)
        # Read back from what is stored, since a 16-bit dtype rounds them.
        self.tensors = {name: tensor.float().numpy() for name, tensor in stored.items()}
        self.settings = Settings(known=asdict(config))
        with prepare(self.checkpoint, self.settings) as prepared:
            self.plan, self.table = prepared.plan, prepared.table
            self.arrays = dict(VariableStream(prepared).arrays())
            self.live = family_reference(prepared, self.tensors)
        self.converted = self._written("correct", self.arrays)
        self._models: dict[str, KerasModel] = {}
        self._outputs: dict[bool, Array] = {}
        self.reference = Recalled(self.live)

    def model(self, dtype: str) -> KerasModel:
        if dtype not in self._models:
            with jax.enable_x64(dtype == "float64"):
                self._models[dtype] = self.family.build(self.config, dtype)
                for path, variable in variables_by_path(self._models[dtype]).items():
                    set_variable(variable, self.arrays[path])
        return self._models[dtype]

    @cached_property
    def _variables(self) -> dict[str, KerasVariable]:
        """The float32 model's variables by path, as the correct model has them."""
        return variables_by_path(self.model("float32"))

    @cached_property
    def tapped(self) -> frozenset[str]:
        """The paths of the layers that are compared, "" for the network among them."""
        signature, features = self.family.signature(self.config), self.family.features(self.config)
        taps = align(self.table, self.live.names, self.layers(), features, signature.axes, signature.words.one)
        return frozenset(["", *(tap.candidate for tap in taps)])

    def layers(self) -> dict[str, KerasLayer]:
        return layers_by_path(self.model("float32"))

    def verify(
        self, faults: Sequence[Injected] = (), *, held: Mapping[str, float] | None = None, setup: Setup = EAGER,
        seed: int = 0,
    ) -> Verdict:  # fmt: skip
        """The verdict on the pair with these faults in the port, on inputs of this seed, under the bounds ``held``."""
        setup = replace(setup, reference=setup.reference or self.reference)
        with self._converted_with(faults) as (file, code), injected(self.family, code):
            verdict = compare_files(Pair(file, self.checkpoint, seed=seed), setup=setup)
        if held is None:
            return verdict
        bounds = {**verdict.bounds, **held}
        return replace(verdict, gates=tuple(under(gate, bounds) for gate in verdict.gates), bounds=bounds)

    def outputs(self, faults: Sequence[Injected], ones: bool) -> tuple[Array, Array]:
        """All outputs, flat, of the float32 port and of the float32 reference, for the first case or inputs of ones."""
        signature, case = self.family.signature(self.config), CASES[0]
        inputs = tuple(cast(signature.make(case.seed, case.batch, case.scale), np.float32))
        if ones:
            inputs = tuple(np.ones_like(array) for array in inputs)
        probe = Probe(self.model("float32"), (), eager=True)
        with self._changed(faults), jax.default_matmul_precision("highest"):
            ours = probe.whole(signature.in_port(inputs))
        if ones not in self._outputs:
            self.live.use(False)
            with highest_precision():
                theirs = run(self.live.modules["float32"], inputs)
            self._outputs[ones] = _flat(theirs, [output.shape for output in ours], signature.axes)
        return _flat(ours), self._outputs[ones]

    @contextmanager
    def _converted_with(self, faults: Sequence[Injected]) -> Iterator[tuple[Path, Sequence[Injected]]]:
        """The converted file with the faults of weights among these, and the others."""
        if in_file := [fault for fault in faults if self._weights_with([fault])]:
            file = self._written("faulty", self.arrays | self._weights_with(in_file))
            yield file, [fault for fault in faults if fault not in in_file]
        else:
            yield self.converted, faults

    def _weights_with(self, faults: Sequence[Injected]) -> dict[str, Array]:
        variables = self._variables
        with self._changed(faults):
            values = {path: np.array(variable.value) for path, variable in variables.items()}
        return {path: array for path, array in values.items() if not np.array_equal(array, self.arrays[path])}

    @contextmanager
    def _changed(self, faults: Sequence[Injected]) -> Iterator[None]:
        """Inside, the float32 model has these faults."""
        with ExitStack() as stack:
            _enter(stack, faults, self.model("float32"))
            yield

    def _written(self, name: str, arrays: Mapping[str, Array]) -> Path:
        file = self.checkpoint.with_name(f"{name}.keras")
        with prepare(self.checkpoint, self.settings) as prepared:
            target = choose_target(InputFiles(checkpoint=self.checkpoint), file, force=True)
            write_converted(target, partial(write_arrays, prepared, target, iter(arrays.items())))
        return file


@contextmanager
def injected(family: Family, faults: Sequence[Injected]) -> Iterator[None]:
    """Inside, every model of the family that is built has these faults in its code."""
    build = family.build
    with ExitStack() as stack:

        def faulty(config: Any, dtype: str | None = None) -> KerasModel:
            model = build(config, dtype)
            _enter(stack, faults, model)
            return model

        with patch.object(family, "build", faulty):
            yield


def _enter(stack: ExitStack, faults: Iterable[Injected], model: KerasModel) -> None:
    layers = layers_by_path(model)
    for mutant, place in faults:
        stack.enter_context(mutant.change(layers[place] if place else model, model))
    stack.enter_context(warnings.catch_warnings())
    # Keras warns of a softmax over an axis of size 1, to which a fault may lead.
    warnings.filterwarnings("ignore", message="You are using a softmax over axis")


def _flat(outputs: Sequence[Array], shapes: Sequence[tuple[int, ...]] = (), stated: Sequence[str] = ()) -> Array:
    """One output as it is, several one after another; in the port's layout, if its ``shapes`` are given."""
    rules = [axes(text) for text in stated]
    pairs = zip(outputs, shapes, strict=True) if shapes else ()
    arrays = [laid_out(output, shape, rules) for output, shape in pairs] or outputs
    return arrays[0] if len(arrays) == 1 else np.concatenate([output.ravel() for output in arrays])
