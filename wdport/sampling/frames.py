"""The intermediate states of the first samples, from noise to the samples."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array as Tensor

from wdport.compile_cache import fast_run
from wdport.diffusion.noise import sample_keys, step_noise
from wdport.diffusion.scan import Carry, Rows, run_rows
from wdport.diffusion.schedules import Array
from wdport.families.roles import Tree
from wdport.sampling.job import Job

MOST = 60
"""Frames: five seconds of an animation."""


def frames_of(job: Job, samples: int, limit: int = MOST) -> Array:
    """Frames (frames, n, *shape): the first samples of a job after evenly spaced calls of the network, decoded if
    states are. They are drawn again, on the first device."""
    sampler = job.sampler
    network, programs = sampler.programs.network, sampler.programs
    count = min(samples, job.count)
    indices = np.arange(count, dtype=np.uint32)
    condition = None if job.condition is None else sampler.as_input(job.condition[:count])

    @partial(jax.jit, compiler_options=fast_run())
    def some(weights: Tree, rows: Rows, carry: Carry, tape: Tensor | None) -> tuple[Carry, Tensor | None]:
        keys = sample_keys(jnp.uint32(sampler.seed), jnp.asarray(indices))

        def drawn(number: Tensor) -> Tensor:
            return step_noise(keys, number, network.shape, network.dtype)

        return run_rows(
            lambda x, embedded: network.apply(weights, x, embedded, condition),
            rows,
            carry,
            drawn if tape is None else tape,
            record=True,
            embedded=network.embed(weights, rows.times),
            change=network.changing(weights),
        )

    with jax.enable_x64(network.dtype == "float64"):
        weights = network.weights(count)
        init = None if job.init is None else np.asarray(job.init[:count]).astype(network.dtype)
        start = programs.start(np.uint32(sampler.seed), indices) if init is None else init
        carry, recorded = programs.carry(start), [np.asarray(start)[None]]
        tape = None if job.tape is None else job.tape[:, :count]
        for rows, slots, _ in sampler.segments(tape):
            carry, states = some(weights, rows, carry, slots)
            recorded.append(np.asarray(states))
        every = np.concatenate(recorded)[: len(sampler.plan.steps) + 1]
        chosen = np.unique(np.linspace(0, len(every) - 1, min(limit, len(every))).round().astype(int))
        finished = (programs.finish(weights, state) for state in every[chosen])
        frames = [np.asarray(state if decoded is None else decoded) for state, decoded in finished]
        restore = job.restore
        return np.stack(frames if restore is None else [restore.values(frame, indices) for frame in frames])
