"""The model's side of the comparison with an artifact: what the Keras model computes, in its own dtype and in float64.

Nothing here is shared with the code that lowers programs: the network is the Keras model's call, an autoencoder is its
own methods, and a sampler is a plain loop over the rows of its plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from operator import methodcaller
from typing import Any, cast

import jax
import numpy as np

from wdport.base.errors import MisfitError, printable
from wdport.base.jax_settings import FAST_COMPILE
from wdport.compare.probe import stateless, tensors
from wdport.compare.programs import CompiledProgram
from wdport.conversion.load import Converted, fill
from wdport.models.interface import Array, Clipping, KerasModel, Signature, Taken
from wdport.models.keras_runtime import exact_float64, variable_values
from wdport.recording.errors import one_line
from wdport.uses.diffusion.noise import FIRST, sample_keys, step_noise
from wdport.uses.diffusion.plans import SamplingPlan
from wdport.uses.diffusion.sampler_updates import LEARNED
from wdport.uses.exporting.lowering import CALL, model_inputs
from wdport.uses.roles import Programmed, Sampled
from wdport.uses.sampling.network import Network, keras_network
from wdport.uses.sampling.sampler import plan_of

SEED = 11
INDICES = (5, 0, 7)
"""The seed and the indices of the samples of the comparison."""


@dataclass(frozen=True)
class ProgramTrial:
    """One call of a program: its inputs, the names of its outputs ("" where the model has none), and the function of
    one side of the model that gives the same. ``dtype`` is that of the outputs, "" for the model's own."""

    program: str
    inputs: tuple[Array, ...]
    outputs: tuple[str, ...]
    expected: Callable[[ModelSide], list[Array]]
    dtype: str = ""

    def __str__(self) -> str:
        shapes = " ".join(str(array.shape).replace(" ", "") for array in self.inputs if array.ndim)
        return f"{self.program} {shapes}"


class ModelSide:
    """The Keras model of a converted file under one dtype policy, with products of this precision."""

    def __init__(self, converted: Converted, policy: str, precision: str) -> None:
        self.exact, self.dtype, self.precision, self._path = policy == "float64", policy, precision, converted.path
        with self.context():
            self.model: KerasModel = converted.family.build(converted.config, policy)
            fill(self.model, converted)
            self.network: Network | None = None
            if isinstance(converted.family, Sampled) and not converted.family.unsampled(converted.config):
                self.network = keras_network(self.model, (converted.family, converted.config))
        # Called a few times only, so the time to compile counts more than the speed.
        self._program: CompiledProgram[Any, Any, list[Any]] = CompiledProgram(self._outputs, FAST_COMPILE)

    @contextmanager
    def context(self) -> Iterator[None]:
        """JAX's settings for this side."""
        with jax.enable_x64(self.exact), jax.default_matmul_precision(self.precision):
            yield

    def _outputs(self, weights: Any, inputs: tuple[Any, ...]) -> list[Any]:
        trained, others = weights
        with exact_float64() if self.exact else nullcontext():
            return tensors(stateless(self.model, trained, others, inputs))

    def call(self, *inputs: Array) -> list[Array]:
        with self.context():
            try:
                result = self._program(variable_values(self.model), self._cast(inputs))
            except ValueError as error:  # of Keras
                what = f"does not take the inputs of the program: {printable(one_line(error), 160)}"
                raise MisfitError(self._path, what, "give the model that was exported") from error
            return [np.asarray(output) for output in result]

    def method(self, name: str, *inputs: Array) -> list[Array]:
        """What the model's own method of this name returns, videos in chunks of two latent frames."""
        with self.context():
            result = getattr(self.model, name)(*self._cast(inputs), chunk=2)
        return [np.asarray(output) for output in (result if isinstance(result, tuple) else (result,))]

    def sample(self, plan: SamplingPlan, state: Array, tape: Array, condition: Sequence[Array]) -> list[Array]:
        """The last state of a plan from ``state`` (B, *shape) with a ``tape`` (slots, B, *shape), and its decoding, if
        there is one."""
        network = cast("Network", self.network)
        kind = np.dtype("float64" if self.exact else "float32")
        state, slots = state.astype(kind), iter(tape.astype(kind))
        state = self._loop(plan, state, slots, condition, network.about.clip)
        with self.context():
            _, decoded = network.finish(None, jax.numpy.asarray(state))
            return [state] if decoded is None else [state, np.asarray(decoded)]

    def _loop(
        self,
        plan: SamplingPlan,
        state: Array,
        slots: Iterator[Array],
        condition: Sequence[Array],
        clip: Clipping | None,
    ) -> Array:
        """A row maps (state, base, memory, output, noise), and the clipped clean state, to the next (state, base,
        memory)."""
        kind, nothing = state.dtype, np.zeros_like(state)
        # The rows of a plan multiply these by zero until they are set.
        base = memory = nothing
        count = len(plan.steps)
        scales = np.ones(count) if plan.scales is None else plan.scales
        spreads = np.zeros((count, 3)) if plan.deviations is None else plan.deviations
        rows = zip(plan.times, scales.astype(kind), plan.coefficients.astype(kind), plan.clean.astype(kind), plan.noisy,
                   spreads.astype(kind), strict=True)  # fmt: skip
        for time, scale, matrix, clean, noisy, spread in rows:
            (output,) = self.call(scale * state, np.full(len(state), time, kind), *condition)
            output, variance = np.split(output, [state.shape[-1]], axis=-1)
            # The order in which the rows of a plan have their coefficients.
            terms = [state, base, memory, output.astype(kind), next(slots) if noisy else nothing]
            if plan.corrects:
                terms += [nothing, *_langevin(*terms[3:])]
            elif clip is not None:
                terms.append(clip.apply(clean[0] * state + clean[1] * terms[3], np))
            terms += [nothing] * (matrix.shape[1] - len(terms))
            if plan.deviations is not None:
                terms[LEARNED] = _deviation(variance, *spread) * terms[4]
            # In NumPy, which shares no code with the scan that is verified.
            state, base, memory = np.tensordot(matrix, np.stack(terms), 1)
        return state

    def _cast(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        """Floating-point inputs, which hold float32 values, in the dtype of the model's variables; integers in 32
        bits."""
        kinds = {"f": "float64" if self.exact else "float32", "i": "int32"}
        return tuple(array.astype(kinds.get(array.dtype.kind, array.dtype)) for array in inputs)


def _deviation(share: Array, small: float, large: float, more: float) -> Array:
    """The deviation whose variance a network predicts, see :class:`wdport.uses.diffusion.plans.SamplingPlan`."""
    part = (share + 1.0) / 2.0
    deviation: Array = np.sqrt(np.exp(2.0 * (part * large + (1.0 - part) * small)) + more)
    return deviation


def _langevin(output: Array, noise: Array) -> tuple[Array, Array]:
    """The terms of a step of Langevin dynamics."""
    lengths = [2.0 * np.sum(e**2) / np.sum(o**2) if o.any() else 0.0 for o, e in zip(output, noise, strict=True)]
    column = np.array(lengths, output.dtype).reshape(-1, *(1,) * (output.ndim - 1))
    return column * output, np.sqrt(column) * noise


def network_trials(converted: Converted, side: ModelSide, facts: Mapping[str, Any]) -> list[ProgramTrial]:
    """Trials of a network: the functions that its family names, or its call; of two sizes where they vary."""
    family = converted.family
    if not isinstance(family, Programmed):
        return _call_trials(family.signature(converted.config), side, facts)
    functions = dict(family.functions(side.model))
    return [trial for name, function in functions.items()
            for trial in _function_trials(name, function.inputs, function.outputs, facts)]  # fmt: skip


def _shapes(facts: Mapping[str, Any], name: str) -> list[list[object]]:
    """The shapes of a program's inputs, as the artifact states them; none for a program that it lacks."""
    return [list(entry["shape"]) for entry in facts["programs"].get(name, {"inputs": []})["inputs"]]


def _call_trials(signature: Signature, side: ModelSide, facts: Mapping[str, Any]) -> list[ProgramTrial]:
    stated = _shapes(facts, CALL)
    if not signature.inputs:
        return _function_trials(CALL, model_inputs(side.model), (), facts)
    fixed = {axis: size for port, shape in zip(signature.inputs, stated, strict=False)
             for axis, size in zip(port.keras_axes, shape, strict=False) if isinstance(size, int)}  # fmt: skip
    free = {axis: step for axis, step in signature.free.items() if axis not in fixed}
    trials = []
    # A batch of one has the sizes that an input is made with alone, which the program may not take.
    for index, batch in enumerate((3, 1 if not any(port.alone and not free for port in signature.inputs) else 2)):
        sizes = {axis: size for axis, size in fixed.items() if axis != "b"}
        stated_sizes = {axis: size for port in signature.inputs for axis, size in port.sizes.items()}
        sizes |= {axis: stated_sizes[axis] + index * step for axis, step in free.items()}
        inputs = _drawn(signature, sizes, SEED + index, fixed.get("b", batch))
        names = tuple(port.name for port in signature.outputs)
        trials.append(ProgramTrial(CALL, inputs, names, methodcaller("call", *inputs)))
    return trials


def _drawn(signature: Signature, sizes: Mapping[str, int], seed: int, batch: int) -> tuple[Array, ...]:
    """Inputs in the Keras model's layout, of float32 values, with these sizes in place of the signature's."""
    inputs = tuple(
        replace(port, sizes={**port.sizes, **{axis: size for axis, size in sizes.items() if axis in port.sizes}},
                alone={axis: size for axis, size in port.alone.items() if axis not in sizes})
        for port in signature.inputs
    )  # fmt: skip
    resized = replace(signature, inputs=inputs)
    return tuple(map(_rounded, resized.in_port(resized.make(seed, batch, 1.0))))


def _rounded(array: Array) -> Array:
    return array.astype(np.float32) if array.dtype.kind == "f" else array


def _function_trials(
    name: str, specs: Sequence[Taken], outputs: tuple[str, ...], facts: Mapping[str, Any]
) -> list[ProgramTrial]:
    """Two trials; every size that varies is 2 and then 3, the batch 2 and then 1."""
    trials = []
    for index in range(2):
        rng = np.random.default_rng([SEED, index])
        shapes = [[_size(size, index) for size in spec.sizes] for spec in specs]
        for shape, stated in zip(shapes, _shapes(facts, name), strict=False):
            shape[:] = [
                size if isinstance(size, int) else default for size, default in zip(stated, shape, strict=False)
            ]
        inputs = tuple(_values(spec, shape, rng) for spec, shape in zip(specs, shapes, strict=True))
        expected = methodcaller("call", *inputs) if name == CALL else methodcaller("method", name, *inputs)
        trials.append(ProgramTrial(name, inputs, outputs, expected))
    return trials


def _size(size: Any, index: int) -> int:
    if isinstance(size, int):
        return size
    # The batch shrinks while other sizes grow, so that no two of them are equal in both trials.
    return int(size.at(2 - index if size.name == "b" else 2 + index))


def _values(spec: Taken, shape: Sequence[int], rng: np.random.Generator) -> Array:
    if spec.kind == "float":
        return rng.uniform(-1.0, 1.0, shape).astype(np.float32)
    return rng.integers(0, 2, shape).astype(np.bool_ if spec.kind == "bool" else np.int32)


def denoiser_trials(converted: Converted, network: Network, batches: Sequence[int]) -> list[ProgramTrial]:
    """Trials of a denoiser: every sample of a batch at its own time."""
    signature, about = converted.family.signature(converted.config), network.about
    sizes = dict(zip(signature.inputs[0].keras_axes[1:], about.shape, strict=True))
    trials = []
    for index, batch in enumerate(batches):
        inputs = _drawn(signature, sizes, SEED + index, batch)
        # The Keras model may have an input for a condition that the exported denoiser is called without.
        inputs = inputs if about.condition is not None and about.condition.taken else inputs[:2]
        # Rounded to float32, so that both sides get the same values in either precision.
        narrow = (inputs[0], inputs[1].astype(np.float32), *map(_rounded, inputs[2:]))
        trials.append(ProgramTrial("denoise", narrow, ("",), methodcaller("call", *inputs), network.dtype))
    return trials


def sampler_plan(network: Network, settings: Mapping[str, Any]) -> SamplingPlan:
    """The plan of a sampler with these settings; raises :class:`UsageError` if the model has none."""
    return plan_of(network, str(settings["name"]), settings["count"], float(settings["eta"]),
                   spacing=settings.get("spacing"))  # fmt: skip


def sampler_trials(network: Network, plan: SamplingPlan, batches: Sequence[int]) -> list[ProgramTrial]:
    """Trials of a sampler, from seeds and from a noise tape."""
    trials = []
    for index, batch in enumerate(batches):
        # Different for every sample, not in order and not from 0, so that a program that ignores them is noticed.
        indices = np.resize(np.array(INDICES, np.uint32), batch) + np.arange(batch, dtype=np.uint32) // len(INDICES) * 8
        keys = sample_keys(jax.numpy.uint32(SEED + index), jax.numpy.asarray(indices))
        init, *slots = (np.asarray(step_noise(keys, number, network.shape, "float32"))
                        for number in (FIRST, *plan.draws[plan.noisy].tolist()))  # fmt: skip
        rng = np.random.default_rng([SEED, index])
        other = rng.standard_normal((1 + plan.slots, batch, *network.shape)).astype(np.float32)
        declared = network.about.condition
        condition = () if declared is None or not declared.taken else (_rounded(declared.trial(batch, index)),)
        names = (network.about.state.name, network.about.decoded.name)
        tape = np.stack(slots) if slots else np.zeros((0, *init.shape), np.float32)
        seeded = (np.asarray(SEED + index), indices, *condition)
        taped = (other[0], *([other[1:]] if plan.slots else []), *condition)
        for name, inputs, start, noise in (("drawn", seeded, init, tape), ("given", taped, other[0], other[1:])):
            trials.append(ProgramTrial(name, inputs, names, methodcaller("sample", plan, start, noise, condition)))
    return trials
