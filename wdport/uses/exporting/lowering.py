"""Lower what a model computes, its call, its family's functions or a sampling plan, to serialised programs and the
arrays that they take.

A program's first argument is the tuple of arrays; they are not constants, so that compilation does not fold them.
One program holds the code for all platforms: their devices need not be present.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax import Array as Tensor
from numpy.typing import DTypeLike

from wdport.base.errors import UsageError
from wdport.base.jax_settings import without_paths
from wdport.compare.probe import stateless
from wdport.families.registry import known_model
from wdport.families.roles import Family
from wdport.models.interface import Array, Configuration, Free, Function, KerasModel, Signature, Taken
from wdport.models.keras_inputs import symbolic_inputs
from wdport.models.keras_runtime import exact_float64, variables_by_path
from wdport.recording.input_text import parse_inputs
from wdport.uses.diffusion.noise import FIRST, sample_keys, step_noise
from wdport.uses.diffusion.plans import SamplingPlan
from wdport.uses.diffusion.run_plan import Carry, Draw, PlanRows, first_carry, plan_rows, run_rows
from wdport.uses.roles import Programmed, Sampled, Tree
from wdport.uses.sampling.network import Network, spec, values_from
from wdport.uses.sampling.sampler import segment_length

CALL = "call"
"""Name of the function of a model that is used through its call."""


def functions_of(family: Family, config: Configuration, model: KerasModel) -> dict[str, Function]:
    """The functions of a model by name: those of its family, or its call with the inputs of its signature."""
    if isinstance(family, Programmed):
        return dict(family.functions(model))
    return {CALL: _call_of(model, family.signature(config))}


def draws_samples(model: KerasModel) -> bool:
    """Whether a model is a denoiser that :func:`wdport.sample` draws samples with."""
    family, config = known_model(model) or (None, None)
    return isinstance(family, Sampled) and not family.unsampled(config)


def functions_of_model(model: KerasModel, inputs: Sequence[str]) -> tuple[dict[str, Function], Mapping[str, object]]:
    """The functions of a Keras model, and its configuration; ``inputs`` state those of a model that wdport does not
    know, which a functional one need not.

    Raises :class:`UsageError`.
    """
    if (registration := known_model(model)) is not None:
        family, config = registration
        if inputs:
            raise UsageError("inputs", f"a {family.name} model has its own", "leave them out")
        return functions_of(family, config, model), config.to_dict()
    if not isinstance(model, keras.Model):
        what = f"a {type(model).__name__} is not a Keras model"
        raise UsageError("model", what, "give what wdport.load_model returns")
    try:
        ports = parse_inputs(inputs)
    except ValueError as error:
        raise UsageError("inputs", str(error), "see docs/inputs.md") from None
    return {CALL: _call_of(model, Signature(ports))}, {}


def values_of(model: KerasModel) -> dict[str, Array]:
    """The values of a model's variables by path."""
    return {path: np.asarray(variable.value) for path, variable in variables_by_path(model).items()}


def held_as(model: KerasModel, stored: Mapping[str, Array]) -> dict[str, Array]:
    """Stored values in the dtypes of a model's variables."""
    return {path: np.asarray(stored[path], str(variable.dtype)) for path, variable in variables_by_path(model).items()}


def _call_of(model: KerasModel, signature: Signature) -> Function:
    """The model's call with these inputs, or those that it was made with, if none are stated."""
    if not model.built:
        raise UsageError("model", "is not built", "call it once on arrays")
    inputs = _input_specs(signature) if signature.inputs else model_inputs(model)
    if not inputs:
        what = f"the inputs of a {type(model).__name__} are not known"
        raise UsageError("model", what, "state them, such as 'x: b 48 48 3', in its table or as inputs (`--input`)")
    # Keras on JAX computes parts of a float64 model in float32, unless it is lifted.
    exact = any(str(variable.dtype) == "float64" for variable in model.weights)

    def call(weights: Mapping[str, Tensor], *inputs: Tensor) -> list[Tensor]:
        trained, others = values_from(model, weights.__getitem__)
        with exact_float64() if exact else nullcontext():
            return list(jax.tree.leaves(stateless(model, trained, others, inputs)))

    return Function(inputs, tuple(port.name for port in signature.outputs), call)


def _input_specs(signature: Signature) -> tuple[Taken, ...]:
    free = signature.free

    def size(axis: str, sizes: Mapping[str, int]) -> int | Free:
        if axis == "b":
            return BATCH
        return Free(f"axis{axis}" if axis.startswith("_") else axis, free[axis]) if axis in free else sizes[axis]

    return tuple(Taken(port.name, tuple(size(axis, port.sizes) for axis in port.keras_axes), port.kind)
                 for port in signature.inputs)  # fmt: skip


def model_inputs(model: KerasModel) -> tuple[Taken, ...]:
    """The inputs of a functional or sequential model; none for others."""
    kinds = {"i": "int", "u": "int", "b": "bool"}

    def size(size: int | None, name: str, axis: int) -> int | Free:
        return size if size is not None else Free(f"{name}_{axis}") if axis else BATCH

    return tuple(
        Taken(tensor.name, tuple(size(length, f"n{place}", axis) for axis, length in enumerate(tensor.shape)),
              kinds.get(str(tensor.dtype)[0], "float"))
        for place, tensor in enumerate(symbolic_inputs(model))
    )  # fmt: skip


def lower_functions(
    functions: Mapping[str, Function], variables: Mapping[str, Array], dtype: str, lowering: Lowering
) -> Lowered:
    """Lower functions of these values; floating-point inputs have this dtype, integers int32.

    Raises :class:`UsageError` if jax cannot trace one of them with sizes that vary.
    """
    _require_known(functions, lowering)
    kinds = {"float": dtype, "int": "int32", "bool": "bool"}
    lowerables: dict[str, Lowerable] = {
        name: (function.call, [(spec.sizes, kinds[spec.kind]) for spec in function.inputs])
        for name, function in functions.items()
    }
    # A model that jax cannot trace with symbolic sizes can often be exported with fixed ones, so the error names these.
    varying = sorted(set(_names(functions)) - set(lowering.sizes) - ({"b"} if lowering.batch else set()))
    with jax.enable_x64(dtype == "float64"):
        try:
            return lowering.serialise(dict(variables), lowerables)
        except Exception as error:
            if not varying:
                raise
            # jax explains over many lines, of which the first is the error.
            first = str(error).strip().partition("\n")[0][:200]
            fix = " ".join("--batch-size N" if name == "b" else f"--size {name}=N" for name in varying)
            what = f"cannot be exported for any {', '.join(varying)}: {first or type(error).__name__}"
            raise UsageError("model", what, f"fix sizes, with {fix}") from error


def described(functions: Mapping[str, Function], lowering: Lowering, lowered: Lowered, dtype: str) -> dict[str, object]:
    """Inputs and outputs of the functions as JSON values; sizes that vary as text."""
    kinds = {"float": dtype, "int": "int32", "bool": "bool"}
    programs: dict[str, object] = {}
    for name, function in functions.items():
        results = lowered.results[name]
        inputs = [{"name": spec.name, "dtype": kinds[spec.kind], "shape": lowering.shape(spec.sizes)}
                  for spec in function.inputs]  # fmt: skip
        outputs = [{"name": output, "dtype": kind, "shape": shape}
                   for output, (shape, kind) in zip(_outputs(function, len(results)), results, strict=True)
                   ]  # fmt: skip
        programs[name] = {"inputs": inputs, "outputs": outputs}
    return programs


def _outputs(function: Function, count: int) -> Sequence[str]:
    named = function.outputs
    if len(named) == count:
        return named
    return ["output"] if count == 1 else [f"output_{index}" for index in range(count)]


def _names(functions: Mapping[str, Function]) -> list[str]:
    sizes = (size for function in functions.values() for spec in function.inputs for size in spec.sizes)
    return list(dict.fromkeys(size.name for size in sizes if isinstance(size, Free)))


def _require_known(functions: Mapping[str, Function], lowering: Lowering) -> None:
    names = [name for name in _names(functions) if name != BATCH.name]
    for name, value in lowering.sizes.items():
        if name not in names:
            fix = f"give {', '.join(names)}" if names else "leave it out: its sizes are fixed"
            raise UsageError(f"--size {name}", "is not a size of this model that varies", fix)
        if value < 1:
            raise UsageError(f"--size {name}", f"invalid size {value}", "give 1 or more")


Lowerable = tuple[Callable[..., Tree], Sequence["Spec"]]
"""A function of (arguments, *inputs), and the :data:`Spec` of every input."""

Spec = tuple[Sequence[object], DTypeLike]
"""Shape, with "b" for the batch and :class:`Free` for other sizes that may vary, and dtype of an argument."""

BATCH = Free("b")


@dataclass(frozen=True, eq=False)
class Lowered:
    """``programs`` by name, serialised; ``arrays``, the first argument of each; ``results``, the shape, with text for
    sizes that vary, and the dtype of every output of each."""

    programs: dict[str, bytes]
    arrays: list[Array]
    results: dict[str, list[tuple[list[int | str], str]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Lowering:
    """The ``platforms``, the number of samples (``batch``; any number if None), the precision of products, and fixed
    ``sizes`` by the names of :class:`Free` ones."""

    platforms: tuple[str, ...]
    batch: int | None
    precision: str
    sizes: Mapping[str, int] = field(default_factory=dict)

    def shape(self, sizes: Sequence[object]) -> list[int | str]:
        """The sizes of a spec as numbers, and as text where they may vary."""
        return [size if isinstance(size, int) else self._size(BATCH if size == "b" else size) for size in sizes]

    def _size(self, size: Any) -> int | str:
        fixed = self.batch if size.name == BATCH.name else self.sizes.get(size.name)
        return str(size) if fixed is None else int(size.at(fixed))

    def serialise(self, arguments: Tree, functions: Mapping[str, Lowerable]) -> Lowered:
        """Serialise every function of (``arguments``, *specs) as a program of (its leaves, *specs)."""
        from jax import export

        leaves, tree = jax.tree.flatten(arguments)
        arrays = [np.asarray(leaf) for leaf in leaves]
        held = tuple(spec(array.shape, array.dtype) for array in arrays)
        programs, results = {}, {}
        for name, (function, specs) in functions.items():
            # One scope for a program: sizes of one name are the same size in all of its inputs.
            scope = export.SymbolicScope()
            inputs = [spec(_dimensions(self.shape(shape), scope), dtype) for shape, dtype in specs]
            program = jax.jit(_of_leaves(function, tree))
            with jax.default_matmul_precision(self.precision), without_paths():
                exported = export.export(program, platforms=self.platforms)(held, *inputs)
            programs[name] = bytes(exported.serialize())
            results[name] = [([size if isinstance(size, int) else str(size) for size in array.shape], str(array.dtype))
                             for array in exported.out_avals]  # fmt: skip
        return Lowered(programs, arrays, results)


def _dimensions(shape: Sequence[int | str], scope: Any) -> list[object]:
    """A shape for jax, whose sizes that vary belong to one scope."""
    from jax import export

    return [size if isinstance(size, int) else export.symbolic_shape(size, scope=scope)[0] for size in shape]


def _of_leaves(function: Callable[..., Tree], tree: jax.tree_util.PyTreeDef) -> Callable[..., Tree]:
    return lambda leaves, *inputs: function(jax.tree.unflatten(tree, leaves), *inputs)


def lower_denoiser(network: Network, lowering: Lowering) -> Lowered:
    """Lower the program "denoise": it maps state (b, *shape), time (b,), and a condition (b, ...), if the network
    is called with one, to the prediction (b, *shape)."""

    def denoise(weights: Tree, state: Tensor, time: Tensor, *condition: Tensor) -> Tensor:
        return network.apply(weights, state, time, *condition)

    with jax.enable_x64(network.dtype == "float64"):
        specs: list[Spec] = [(("b", *network.shape), network.dtype), (("b",), network.dtype), *_condition(network)]
        return lowering.serialise(network.weights(), {"denoise": (denoise, specs)})


def lower_sampler(network: Network, plan: SamplingPlan, lowering: Lowering) -> Lowered:
    """Lower the programs "drawn", of seed () and indices (b,), uint32, and "given", of x_T (b, *shape) and, if the plan
    adds noise, a tape (slots, b, *shape); both also take a condition (b, ...) if the network is called with one. They
    return states (b, *shape) and, if the model decodes, their decoded values."""
    shape, dtype = network.shape, network.dtype

    def drawn(arguments: Tree, seed: Tensor, indices: Tensor, *condition: Tensor) -> tuple[Tensor, ...]:
        weights, rows, _ = arguments
        keys = sample_keys(seed, indices)
        # x_T is one of the numbered draws of a sample.
        start = step_noise(keys, FIRST, shape, dtype)
        last = _run(network, weights, rows, start, lambda n: step_noise(keys, n, shape, dtype), condition)
        return _finished(network, weights, last)

    def given(arguments: Tree, state: Tensor, *more: Tensor) -> tuple[Tensor, ...]:
        weights, rows, slots = arguments
        tape, condition = more[: bool(plan.slots)], more[bool(plan.slots) :]

        def noise(slot: Tensor) -> Tensor:
            return tape[0][slot] if tape else jnp.zeros_like(state)

        return _finished(network, weights, _run(network, weights, rows._replace(draws=slots), state, noise, condition))

    with jax.enable_x64(dtype == "float64"):
        rows, slots = _segments(plan, dtype)
        tape: list[Spec] = [((plan.slots, "b", *shape), dtype)] if plan.slots else []
        functions: dict[str, Lowerable] = {
            "drawn": (drawn, [((), np.uint32), (("b",), np.uint32), *_condition(network)]),
            "given": (given, [(("b", *shape), dtype), *tape, *_condition(network)]),
        }
        return lowering.serialise((network.weights(), rows, slots), functions)


def _segments(plan: SamplingPlan, dtype: str) -> tuple[PlanRows, Array]:
    """Return the plan's rows in segments of one length, as :class:`wdport.uses.sampling.Sampler` runs them, so that
    what depends only on time is held for one segment at a time; and the tape slot of every row."""
    length = segment_length(len(plan.steps))
    padded = plan.padded(len(plan.steps) + -len(plan.steps) % length)
    # A row without noise points to any slot: it does not read it.
    slots = np.maximum(np.cumsum(padded.noisy) - 1, 0).astype(np.uint32)
    rows = jax.tree.map(lambda values: values.reshape(-1, length, *values.shape[1:]), plan_rows(padded, dtype))
    return rows, slots.reshape(-1, length)


def _condition(network: Network) -> list[Spec]:
    declared = network.about.condition
    return (
        [(("b", *declared.shape), declared.dtype or network.dtype)] if declared is not None and declared.taken else []
    )


def _run(
    network: Network, weights: Tree, rows: PlanRows, state: Tensor, noise: Draw, condition: Sequence[Tensor]
) -> Tensor:
    value = condition[0] if condition else None

    def segment(carry: Carry, rows: PlanRows) -> tuple[Carry, None]:
        return run_rows(lambda x, times: network.apply(weights, x, times, value), rows, carry, noise,
                        change=network.changing(weights))[0], None  # fmt: skip

    # A scan of scans: the embeddings of one segment are computed at once, and only these are held.
    carry, _ = jax.lax.scan(segment, first_carry(state), rows)
    state_after: Tensor = carry[0]
    return state_after


def _finished(network: Network, weights: Tree, state: Tensor) -> tuple[Tensor, ...]:
    last, decoded = network.finish(weights, state)
    return (last,) if decoded is None else (last, decoded)
