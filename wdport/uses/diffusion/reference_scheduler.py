"""DDPM and DDIM by diffusers' own scheduler classes, on our noise: the state after every step.

The plans of :mod:`wdport.uses.diffusion.scheduler_config` are compared with it. The library's tables, which are
float32, are lifted to float64; steps are computed in the dtype of x_T. The library gives the mean and the deviation of
every step, and the noise is ours. Facts: diffusers 0.42.1, which numbers the steps from 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from math import sqrt
from typing import Any, Final
from unittest.mock import patch

import numpy as np

from wdport.models.interface import Array
from wdport.recording.float64 import lifted
from wdport.uses.diffusion.process import Run
from wdport.uses.diffusion.reference_samplers import Change, Network, Noise, walk
from wdport.uses.libraries import released_class

KINDS: Final = {"ddpm": "DDPMScheduler", "ddim": "DDIMScheduler"}
"""The classes, by sampler."""

PREDICTIONS: Final = {"noise": "epsilon", "sample": "sample", "velocity": "v_prediction"}

SCORE_SDE: Final = "ScoreSdeVeScheduler"
CONSISTENCY: Final = "CMStochasticIterativeScheduler"
"""Classes over noise levels whose loops differ from the usual one."""

FLOOR: Final = 1.001e-10
"""DDPM adds noise of a deviation of 1e-10 after a last step that is not step 0; we add none: see docs/sampling.md."""


class ReferenceScheduler:
    """The library's schedulers with the fields ``document``, those of
    :class:`~wdport.uses.diffusion.scheduler_config.Scheduler`.

    Its methods raise :class:`MachineError` if diffusers is not installed.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document

    def steps(self, count: int) -> list[int]:
        """The library's timesteps, falling; its rounding may add a timestep -1 to trailing ones, which is left out."""
        self._counting.set_timesteps(count)
        return [int(step) for step in self._counting.timesteps[:count]]

    def states(
        self, sampler: str, network: Network, run: Run, steps: Sequence[int], init: Array, noise: Array | Noise,
        change: Change | None = None, repeats: int = 1,
    ) -> list[Array]:  # fmt: skip
        """The states after each of the library's ``steps``, which count from 1 here; the predicted clean state is
        clipped if configured, and then changed. Arguments as in :mod:`wdport.uses.diffusion.reference_samplers`."""
        learned = self._document["variance_type"] == "learned_range"
        if learned and change is not None:
            in_order, change = change, lambda clean: np.moveaxis(in_order(np.moveaxis(clean, 1, -1)), -1, 1)
        scheduler, unchanged = (
            self._scheduler(sampler, run.target, applied_change) for applied_change in (change, None)
        )
        for library_scheduler in (scheduler, unchanged):
            library_scheduler.set_timesteps(len(steps))

        def step(x: Array, t: int, _: int) -> tuple[Array, float | Array]:
            prediction = network(x, np.full(len(x), t - 1, x.dtype))
            # The library returns mean plus noise only. From a state and a prediction of zeros the mean is zero, so the
            # result for a noise of ones is the deviation. ``unchanged``: a change could map zeros to something else.
            nothing = np.zeros((1, 1, 1, 1))
            if not learned:
                deviation = float(_next(unchanged, run, t - 1, nothing, nothing, 1.0)[0, 0, 0, 0])
                return _next(scheduler, run, t - 1, x, prediction, 0.0), deviation if deviation > FLOOR else 0.0
            # The library has channels second; our states have them last, and only here does it matter.
            x, prediction = np.moveaxis(x, -1, 1), np.moveaxis(prediction, -1, 1)
            if sampler == "ddim":  # which has no variance of the network's
                prediction = prediction[:, : x.shape[1]]
            nothing, only = np.zeros_like(x), prediction.copy()
            only[:, : x.shape[1]] = 0.0
            spread = _next(unchanged, run, t - 1, nothing, only, 1.0)
            mean = _next(scheduler, run, t - 1, x, prediction, 0.0)
            return np.moveaxis(mean, 1, -1), np.moveaxis(np.where(spread > FLOOR, spread, 0.0), 1, -1)

        return walk(step, steps, np.array([1.0, *scheduler.alphas_cumprod.tolist()]), init, noise, repeats)

    @cached_property
    def _counting(self) -> Any:
        return self._scheduler("ddpm", "noise")

    def _scheduler(self, sampler: str, target: str, change: Change | None = None) -> Any:
        document = dict(self._document)
        limit = document.pop("clip")
        fields = {**document, "prediction_type": PREDICTIONS[target], "clip_sample": limit is not None,
                  "clip_sample_range": limit or 1.0}  # fmt: skip
        # Each class rejects fields that only the other one has.
        if sampler == "ddim":
            if document["beta_schedule"] == "sigmoid":  # which only its DDPM implements
                fields |= {"beta_schedule": "linear", "trained_betas": self._counting.betas.tolist()}
            del fields["variance_type"]
        else:
            del fields["set_alpha_to_one"]
        with lifted():
            scheduler = released_class("diffusers", KINDS[sampler])(**fields)
        # Its dynamic thresholding is the only place where the library changes the clean state by a method.
        if change is not None:
            first = scheduler._threshold_sample if document["thresholding"] else _clipped(limit)
            scheduler.register_to_config(thresholding=True)
            scheduler._threshold_sample = lambda clean: _changed(change, first(clean))
        return scheduler


def _clipped(limit: float | None) -> Callable[[Any], Any]:
    return lambda clean: clean if limit is None else clean.clamp(-limit, limit)


def _changed(change: Change, clean: Any) -> Any:
    """A clean state of the library after our change, which follows the library's own."""
    import torch

    return torch.from_numpy(np.ascontiguousarray(change(clean.numpy())))


def _next(scheduler: Any, run: Run, timestep: int, x: Array, prediction: Array, noise: float) -> Array:
    """The library's next state with a noise of one value."""
    import torch

    state, output = (torch.from_numpy(np.ascontiguousarray(array)) for array in (x, prediction))
    filled = torch.full_like(state, noise)
    with lifted():
        if type(scheduler).__name__ == KINDS["ddim"]:
            return np.asarray(scheduler.step(output, timestep, state, eta=run.eta, variance_noise=filled).prev_sample)
        # Unlike DDIM's, DDPM's step takes no noise as an argument.
        with patch("diffusers.schedulers.scheduling_ddpm.randn_tensor", lambda *_, **__: filled):
            return np.asarray(scheduler.step(output, timestep, state).prev_sample)


class ReferenceLevels:
    """The library's scheduler of a process over noise levels; ``document`` has its class and fields.

    Its methods raise :class:`MachineError` if diffusers is not installed.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._kind = str(document["_class_name"])
        self._fields = {name: value for name, value in document.items() if name != "_class_name"}

    def states(self, network: Network, count: int, init: Array, noise: Array | Noise) -> list[Array]:
        """The states after every call of the network, in units of the data's deviation and of variance 1; the library's
        own are x = data + level * noise. ``noise`` is a tape, or a function of the step, to which 1024 is added for
        every earlier draw of it."""
        with lifted():
            scheduler = released_class("diffusers", self._kind)(**self._fields)
            scheduler.set_timesteps(count)
            if self._kind == SCORE_SDE:
                scheduler.set_sigmas(count)
                levels = [*scheduler.discrete_sigmas.flip(0).tolist(), 0.0]
            if self._kind == CONSISTENCY:
                # The library keeps these levels in float32.
                ramp = np.arange(count) * (scheduler.config.num_train_timesteps // count)
                levels = scheduler._convert_to_karras(ramp / (scheduler.config.num_train_timesteps - 1))
                scheduler.sigmas = _tensor(np.append(levels, scheduler.config.sigma_min))
        # The network is called outside: it has a dtype of its own.
        if self._kind == SCORE_SDE:
            return list(_score_states(scheduler, network, levels, init, _draws(noise)))
        return list(_scaled_states(scheduler, network, init, _draws(noise), self._kind == CONSISTENCY))


Draws = Callable[[int, int], Array]
"""(step, earlier draws of it) to noise."""


def _draws(noise: Array | Noise) -> Draws:
    if isinstance(noise, np.ndarray):
        slots = iter(noise)
        return lambda step, earlier: np.asarray(next(slots))
    return lambda step, earlier: noise(step + 1024 * earlier)


def _score_states(
    scheduler: Any, network: Network, levels: Sequence[float], init: Array, draw: Draws
) -> Iterator[Array]:
    """The loop of the library's pipeline, for one sample after the other: its corrector averages over a batch."""
    steps = len(levels) - 1
    x = init * sqrt(1.0 + levels[0] ** 2)
    for index, time in enumerate(scheduler.timesteps):
        step, kind = steps - index, init.dtype
        level = np.full(len(x), float(scheduler.sigmas[index]), kind)
        for earlier in range(scheduler.config.correct_steps):
            output, random = network(x, level), draw(step, earlier)
            corrected = [_noised(scheduler.step_correct, random[[row]], output[[row]], x[[row]])["prev_sample"]
                         for row in range(len(x))]  # fmt: skip
            x = np.concatenate(corrected).astype(kind)
            yield x / sqrt(1.0 + levels[index] ** 2)
        random = draw(step, scheduler.config.correct_steps) if step > 1 else np.zeros_like(x)
        result = _noised(scheduler.step_pred, random, network(x, level), time, x)
        x = result["prev_sample" if step > 1 else "prev_sample_mean"].astype(kind)
        yield x / sqrt(1.0 + levels[index + 1] ** 2)


def _scaled_states(scheduler: Any, network: Network, init: Array, draw: Draws, noisy: bool) -> Iterator[Array]:
    """A loop of the library for a network whose input the scheduler scales; ``noisy`` if its steps add noise."""
    unit, kind, steps = scheduler.config.sigma_data, init.dtype, len(scheduler.timesteps)
    x = init * sqrt(float(scheduler.sigmas[0]) ** 2 + unit**2)
    for index, time in enumerate(scheduler.timesteps):
        with lifted():
            scaled = scheduler.scale_model_input(_tensor(x), time).numpy().astype(kind)
        output = network(scaled, np.full(len(x), float(time), kind))
        last = index == steps - 1
        random = draw(steps - index, 0) if noisy and not last else np.zeros_like(x)
        x = _noised(scheduler.step, random, output, time, x)["prev_sample"].astype(kind)
        yield x / (unit if last else sqrt(float(scheduler.sigmas[index + 1]) ** 2 + unit**2))


def _noised(step: Callable[..., Any], noise: Array, *arguments: Any) -> dict[str, Array]:
    """The library's results of a step with our noise."""
    tensors = [_tensor(value) if isinstance(value, np.ndarray) else value for value in arguments]
    with lifted(), patch(f"{step.__module__}.randn_tensor", lambda *_, **__: _tensor(noise)):
        return {name: np.asarray(value) for name, value in step(*tensors).items()}


def _tensor(array: Array) -> Any:
    import torch

    return torch.from_numpy(np.ascontiguousarray(array))
