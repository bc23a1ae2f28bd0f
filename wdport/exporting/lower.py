"""Compile a network, with or without a sampling plan, to serialised programs and the arrays that they take.

A program's first argument is the tuple of arrays; they are not constants, so that compilation does not fold them.
One program holds the code for all platforms: their devices need not be present.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array as Tensor
from numpy.typing import DTypeLike

from wdport.diffusion.noise import FIRST, sample_keys, step_noise
from wdport.diffusion.plans import Plan
from wdport.diffusion.scan import Carry, Draw, Rows, first_carry, plan_rows, run_rows
from wdport.diffusion.schedules import Array
from wdport.families.roles import Tree
from wdport.model import Free
from wdport.sampling.network import Network, spec
from wdport.sampling.sampler import segment_length

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
            scope = export.SymbolicScope()
            inputs = [spec(_dimensions(self.shape(shape), scope), dtype) for shape, dtype in specs]
            program = jax.jit(_of_leaves(function, tree))
            with jax.default_matmul_precision(self.precision):
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
        embedded = network.embed(weights, time)

        def one(x: Tensor, embedding: Tree, *value: Tensor) -> Tensor:
            prediction: Tensor = network.apply(weights, x[None], embedding, value[0][None] if value else None)[0]
            return prediction

        return jax.vmap(one)(state, embedded, *condition)

    with jax.enable_x64(network.dtype == "float64"):
        specs: list[Spec] = [(("b", *network.shape), network.dtype), (("b",), network.dtype), *_condition(network)]
        return lowering.serialise(network.weights(lowering.batch), {"denoise": (denoise, specs)})


def lower_sampler(network: Network, plan: Plan, lowering: Lowering) -> Lowered:
    """Lower the programs "drawn", of seed () and indices (b,), uint32, and "given", of x_T (b, *shape) and, if the plan
    adds noise, a tape (slots, b, *shape); both also take a condition (b, ...) if the network is called with one. They
    return states (b, *shape) and, if the model decodes, their decoded values."""
    shape, dtype = network.shape, network.dtype

    def drawn(arguments: Tree, seed: Tensor, indices: Tensor, *condition: Tensor) -> tuple[Tensor, ...]:
        weights, rows, _ = arguments
        keys = sample_keys(seed, indices)
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
        return lowering.serialise((network.weights(lowering.batch), rows, slots), functions)


def _segments(plan: Plan, dtype: str) -> tuple[Rows, Array]:
    """Return the plan's rows in segments of one length, as :class:`wdport.sampling.Sampler` runs them, so that what
    depends only on time is held for one segment at a time; and the tape slot of every row."""
    length = segment_length(len(plan.steps))
    padded = plan.padded(len(plan.steps) + -len(plan.steps) % length)
    slots = np.maximum(np.cumsum(padded.noisy) - 1, 0).astype(np.uint32)
    rows = Rows(*(values.reshape(-1, length, *values.shape[1:]) for values in plan_rows(padded, dtype)))
    return rows, slots.reshape(-1, length)


def _condition(network: Network) -> list[Spec]:
    declared = network.about.condition
    return (
        [(("b", *declared.shape), declared.dtype or network.dtype)] if declared is not None and declared.taken else []
    )


def _run(
    network: Network, weights: Tree, rows: Rows, state: Tensor, noise: Draw, condition: Sequence[Tensor]
) -> Tensor:
    value = condition[0] if condition else None

    def segment(carry: Carry, rows: Rows) -> tuple[Carry, None]:
        embedded = network.embed(weights, rows.times)
        return run_rows(lambda x, e: network.apply(weights, x, e, value), rows, carry, noise, embedded=embedded,
                        change=network.changing(weights))[0], None  # fmt: skip

    carry, _ = jax.lax.scan(segment, first_carry(state), rows)
    state_after: Tensor = carry[0]
    return state_after


def _finished(network: Network, weights: Tree, state: Tensor) -> tuple[Tensor, ...]:
    last, decoded = network.finish(weights, state)
    return (last,) if decoded is None else (last, decoded)
