"""Gate samplers (H): what `wdport sample` draws, against plain loops over the same network with the same noise.

The network is one of a few operations, so that every sampler of any model is compared in seconds: sampling network (E')
compares the network itself. The full battery also draws from that. Samples are drawn as users draw them: by a request,
from a seed, in batches that do not divide their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from zlib import crc32

import jax
import jax.numpy as jnp
import numpy as np

from wdport.base.errors import MachineError
from wdport.base.jax_settings import fast_compile
from wdport.compare.findings import Gate, fact
from wdport.models.interface import Array, Clipping, Condition, Configuration, Decoding, Diffused, KerasModel, Windowed
from wdport.uses.data.plain_formulas import plain_prices
from wdport.uses.data.transforms import OHLC_ATR
from wdport.uses.diffusion.plans import SamplingPlan
from wdport.uses.diffusion.process import Process, Run
from wdport.uses.diffusion.sampler_updates import UNCHANGED, WITH_ETA
from wdport.uses.gates.end_to_end.sides import Side, UseMeasures
from wdport.uses.roles import Sampled
from wdport.uses.sampling.data_windows import STREAM
from wdport.uses.sampling.job import plan_job
from wdport.uses.sampling.network import Network, keras_network
from wdport.uses.sampling.request import Request
from wdport.uses.sampling.sampler import Programs, Samples

SAMPLES, BATCH, SEED = 5, 3, 7
GUIDANCE = (2.5, 0.5)
ANCHOR = 37.5
SEGMENT = 4
"""Rows per call: fewer than the steps of a trial, so that every sampler is continued in a second call."""

Conditioned = Callable[[Array, Array, Array | None], Array]
"""(state (B, *shape), times (B,), condition (B, ...) or None) to the prediction (B, *shape), in numpy and float64."""


@dataclass(frozen=True)
class Draw:
    """One request, by name, with what its plain loop needs: the run, and the condition of all samples. Its noise is
    given, or with ``seeded`` follows from the seed. With ``statistics``, those of every sample, prices are compared
    instead of states."""

    name: str
    run: Run
    request: Request
    condition: Array | None = None
    seeded: bool = False
    statistics: Mapping[str, Array] | None = None


def samplers_gate(
    model: KerasModel, family: Sampled, config: Configuration, process: Process, stated: tuple[int, ...] = (),
    decode: Callable[[Array], Array] | None = None, reference: Conditioned | None = None,
) -> Gate:  # fmt: skip
    """Gate samplers (H).

    Args:
        model: the port in float64, whose process is compared with the checkpoint's.
        family: its family.
        config: its configuration.
        process: the checkpoint's own.
        stated: the shape of a sample as the network's inputs state it.
        decode: states (B, *shape) to samples, in numpy, if the family's own gates do not compare it.
        reference: to draw from the model's own network as well.
    """
    plain = keras_network(model, (family, config))
    comparison = UseMeasures("trajectory")
    undefined = np.errstate(divide="ignore", invalid="ignore")  # of tables that are all zeros
    with jax.enable_x64(True), jax.default_matmul_precision("highest"), undefined:
        small, formula = _small(plain, process.learned), partial(_formula, np, process.learned)

        def decoded(states: Array) -> Array:
            return np.asarray(family.to_series(config, jnp.asarray(states)))

        _compare(comparison, small, formula, process, reference is not None, decoded)
        if reference is not None:
            _compare(comparison, plain, reference, process, True, decoded, "the model's ")
        if decode is not None:
            states = np.random.default_rng(SEED).uniform(-2.0, 2.0, (SAMPLES, *plain.shape))
            comparison.add("decoding", partial(decoded, states), decode(states))
    # A network that takes any size does not show that the axes of its samples are exchanged.
    if plain.shape != stated and sorted(plain.shape) == sorted(stated):
        text = f"samples have the shape {plain.shape}, and the network is made for {stated}"
        comparison.facts.append(fact(text))
    if plain.about.clip != process.clip:
        what = f"is clipped to {plain.about.clip}, and the checkpoint's to {process.clip}"
        comparison.facts.append(fact(f"the clean state {what}"))
    listed = 1
    try:
        wrong = plain.process().wrong_count()
    except MachineError as error:
        listed, wrong = 0, None
        comparison.leave_out(error)
    if wrong is not None:
        comparison.facts.append(fact(f"the list for {wrong} steps is not the checkpoint's"))
    return comparison.gate("H", listed)


def _compare(
    comparison: UseMeasures, network: Network, plain: Conditioned, process: Process, full: bool,
    decoded: Callable[[Array], Array], prefix: str = "",
) -> None:  # fmt: skip
    programs = Programs(network, fast_compile(), SEGMENT)
    for draw in draws(process, network.about, full, quick=not prefix):
        # By name, so that a draw is the same whatever others there are.
        tape = _Tape(network.shape, np.random.default_rng([SEED, crc32(draw.name.encode())]), draw.seeded)
        try:
            truth = _plain_samples(draw, plain, process, network.about, tape(0), tape)
        except MachineError as error:  # the reference is a library's scheduler, which is not installed
            comparison.leave_out(error)
            continue
        request, name = draw.request, f"{prefix}{draw.name}"
        if draw.seeded:
            moved = _plain_samples(draw, plain, process, network.about, tape.rounded(0), tape.rounded)
            comparison.add_single(name, partial(_drawn, programs, request), moved, truth)
            continue
        slots = np.reshape(tape.drawn[1:], (-1, SAMPLES, *network.shape))
        request = replace(request, init=tape.drawn[0], noise=slots)
        again = partial(_plain_samples, draw, plain, process, network.about, tape.moved, tape.again())
        if (statistics := draw.statistics) is None:
            comparison.add(name, partial(_drawn, programs, request), truth, again)
            continue
        prices = partial(plain_prices, decoded(truth), statistics)
        moved_prices = partial(_prices, again, decoded, statistics)
        comparison.add(name, partial(_drawn, programs, request, restored=True), prices(), moved_prices)


class _Tape:
    """The noise of a plain loop, recorded as it is drawn."""

    def __init__(self, shape: tuple[int, ...], rng: np.random.Generator, seeded: bool) -> None:
        self._shape, self._rng, self._seeded = shape, rng, seeded
        self.drawn: list[Array] = []

    def __call__(self, number: int) -> Array:
        values = _noise(number, self._shape) if self._seeded else self._rng.standard_normal((SAMPLES, *self._shape))
        self.drawn.append(values)
        return values

    @property
    def moved(self) -> Array:
        """The first draw with every value moved by one rounding of float64."""
        signs = np.random.default_rng(SEED).choice([-1.0, 1.0], self.drawn[0].shape)
        return np.asarray(self.drawn[0] * (1.0 + 2.0**-53 * signs))

    def again(self) -> Callable[[int], Array]:
        """The further draws once more, in their order."""
        values = iter(self.drawn[1:])
        return lambda _: next(values)

    def rounded(self, number: int) -> Array:
        """The noise with every value moved by one unit in its last place of float32, in which it is drawn."""
        values = self(number)
        moved: Array = values * (1.0 + 2.0**-23 * self._rng.choice([-1.0, 1.0], values.shape))
        return moved


def _drawn(programs: Programs, request: Request, restored: bool = False) -> Array:
    """The states of a request's samples, or the samples in the units of the data."""
    samples = Samples.join(list(plan_job(programs, request).draw()))
    return samples.state if samples.decoded is None or not restored else samples.decoded


def _prices(states: Side, decoded: Callable[[Array], Array], statistics: Mapping[str, Array]) -> Array:
    return plain_prices(decoded(states()), statistics)


def draws(process: Process, about: Diffused, full: bool, quick: bool = True) -> Iterator[Draw]:
    """Every sampler, then every option that such a model has; for a network that is not ``quick``, one sampler only, of
    few steps."""
    conditioning = about.condition
    usual_values = None
    if conditioning is not None and conditioning.taken:
        usual_values = conditioning.trial(1, (conditioning.classes or 1) - 1)

    def draw(
        name: str, sampler: str, eta: float = 0.0, condition: Any = usual_values, seeded: bool = False,
        statistics: Mapping[str, Array] | None = None, by_name: str | None = None, **options: Any,
    ) -> Draw:  # fmt: skip
        request = Request(count=SAMPLES, batch=BATCH, seed=SEED, sampler=sampler, steps=process.count(sampler), eta=eta,
                          condition=condition if by_name is None else by_name, **options)  # fmt: skip
        every = None if condition is None else np.array([condition[index % len(condition)] for index in range(SAMPLES)])
        return Draw(name, Run(sampler, eta, process.target), request, every, seeded, statistics)

    counted = [sampler for sampler in process.samplers if process.count(sampler) is not None]
    usual = "ddim" if "ddim" in counted else counted[0]
    offered = list(process.samplers) if quick else [usual]
    for sampler in offered:
        yield draw(f"sampler {sampler}", sampler)
        if sampler in WITH_ETA and "ddpm" in process.samplers:
            yield draw(f"sampler {sampler}, eta 0.5", sampler, eta=0.5)
    if "dpm++2m" in offered:
        yield draw("karras spacing (dpm++2m)", "dpm++2m", spacing="karras")
    noisy = (sampler for sampler in (usual, *counted) if sampler in WITH_ETA or _plan(process, sampler).slots)
    random = next(noisy, usual)
    yield draw("noise of a seed", random, eta=0.5 if random in WITH_ETA else 0.0, seeded=True)
    if conditioning is not None and conditioning.taken:
        yield draw(f"{conditioning.name} ({usual})", usual, condition=conditioning.trial(3)[::2])
        if conditioning.optional:
            yield draw(f"no {conditioning.name} ({usual})", usual, condition=None, unconditional=True)
        if conditioning.null is not None:
            # DDIM, the usual one, does not use a variance that the network predicts.
            guided = "ddpm" if process.learned else usual
            for scale in GUIDANCE:
                other = conditioning.trial(1, int(conditioning.null) + 1)
                yield draw(f"guidance {scale} ({guided})", guided, condition=other, guidance=scale)
    if about.windowed is not None and about.windowed.transform == OHLC_ATR and quick:
        yield from _priced(draw, usual, about.windowed, conditioning)
    if isinstance(about.decoding, Decoding) and about.windowed is None:
        known_values = _known_values(about.decoding)
        offered = [sampler for sampler in (offered if quick else counted) if sampler not in UNCHANGED]
        usual = usual if usual in offered else next(sampler for sampler in counted if sampler in offered)
        yield draw(f"known values, repeated steps ({usual})", usual, known=known_values, resample=2)
        yield draw("known values, noise of a seed", usual, eta=0.5 if usual in WITH_ETA else 0.0, known=known_values,
                   resample=3, seeded=True)  # fmt: skip
        for sampler in offered if full and quick else ():
            yield draw(f"known values ({sampler})", sampler, known=known_values, resample=1)


def _priced(draw: Callable[..., Draw], sampler: str, windowed: Windowed, declared: Condition | None) -> Iterator[Draw]:
    """Prices with the statistics of the windows that the seed draws, except for what a request gives."""
    numbers = np.random.default_rng([SEED, STREAM]).integers(0, windowed.count, SAMPLES)
    drawn = {name: array[numbers].astype(np.float64) for name, array in windowed.statistics.items()}
    begun = {**drawn, "anchors": np.full(SAMPLES, ANCHOR)}
    conditioned = declared is not None and declared.taken
    yield draw(f"prices ({sampler})", sampler, condition=None, unconditional=conditioned, statistics=drawn)
    if declared is None or declared.statistic is None or not conditioned:
        yield draw(f"prices from an anchor ({sampler})", sampler, condition=None, unconditional=conditioned,
                   anchor=ANCHOR, statistics=begun)  # fmt: skip
        return
    yield draw(f"prices from an anchor, {declared.name} of the data ({sampler})", sampler,
               condition=drawn[declared.statistic], by_name="data", anchor=ANCHOR, statistics=begun)  # fmt: skip
    values = np.resize(declared.trial(3), SAMPLES)
    yield draw(f"prices, {declared.name} given ({sampler})", sampler, condition=values,
               statistics={**drawn, declared.statistic: values})  # fmt: skip


def _plan(process: Process, sampler: str) -> SamplingPlan:
    return process.plan(sampler, process.count(sampler), changed=process.clip is not None)


def _known_values(decoding: Decoding) -> Array:
    """Every other value of one decoded sample, the first of them exactly 0; NaN for the others."""
    rng = np.random.default_rng(SEED)
    values = np.asarray(decoding.mean) + np.asarray(decoding.std) * rng.uniform(-1.0, 1.0, decoding.shape)
    # A known value of exactly 0 is not the same as an unknown one.
    values.reshape(-1)[1] = 0.0
    return np.where(np.arange(values.size).reshape(values.shape) % 2, values, np.nan)


def _plain_samples(
    draw: Draw, network: Conditioned, process: Process, about: Diffused, init: Array, noise: Callable[[int], Array]
) -> Array:
    """The states of a request's samples by a plain loop."""
    request, none = draw.request, None if about.condition is None else about.condition.null

    def guided(x: Array, times: Array) -> Array:
        conditional = network(x, times, draw.condition)
        if request.guidance is None or none is None or draw.condition is None:
            return conditional
        plain = network(x, times, np.full_like(draw.condition, none))
        mixed = request.guidance * conditional + (1.0 - request.guidance) * plain
        mixed[..., x.shape[-1] :] = conditional[..., x.shape[-1] :]
        return mixed

    fit = None if request.known is None else _fit(about, np.asarray(request.known))
    clip = process.clip

    def change(clean: Array) -> Array:
        clipped = clean if clip is None else _clipped(clip, clean)
        return clipped if fit is None else fit(clipped)

    changes = None if clip is None and fit is None else change
    if request.spacing is not None:
        process = process.respaced(request.spacing, request.steps)
    states = process.plain(draw.run, guided, init, noise, changes, request.resample or 1)
    return states if fit is None else fit(states)


def _clipped(clip: Clipping, clean: Array) -> Array:
    """Clean states as :class:`Clipping` says, sample by sample."""
    limits = [clip.limit] * len(clean)
    if clip.ratio is not None:
        limits = [min(max(float(np.quantile(np.abs(one), clip.ratio)), 1.0), clip.limit) for one in clean]
    scales = [1.0 if clip.ratio is None else limit for limit in limits]
    clipped = [np.minimum(np.maximum(one, -limit), limit) / scale
               for one, limit, scale in zip(clean, limits, scales, strict=True)]  # fmt: skip
    return np.stack(clipped)


def _fit(about: Diffused, values: Array) -> Callable[[Array], Array]:
    """States moved by the encoding of what their decoded form lacks of the known values (arXiv 2212.00490)."""
    decoding = about.decoding
    assert isinstance(decoding, Decoding)
    encode, decode = jax.jit(decoding.encode), jax.jit(decoding.decode)
    straight = values if decoding.curve is None else decoding.curve(values)
    standard = (straight - np.asarray(decoding.mean)) / np.asarray(decoding.std)

    def fit(states: Array) -> Array:
        lacking = np.nan_to_num(standard - np.asarray(decode(states)))
        moved: Array = states + np.asarray(encode(lacking))
        return moved

    return fit


def _noise(number: int, shape: tuple[int, ...]) -> Array:
    """Draw ``number`` of every sample, (SAMPLES, *shape): its key follows from the seed and its index."""
    # jax's default, which settings can change.
    with jax.threefry_partitionable(True):
        per_sample = [_normal(*np.array([SEED, index, number], np.uint32), shape) for index in range(SAMPLES)]
    return np.stack([np.asarray(values, np.float64) for values in per_sample])


@partial(jax.jit, static_argnames="shape")
def _normal(seed: Any, index: Any, number: Any, shape: tuple[int, ...]) -> Any:
    key = jax.random.wrap_key_data(jnp.stack([jnp.uint32(0), seed]), impl="threefry2x32")
    return jax.random.normal(jax.random.fold_in(jax.random.fold_in(key, index), number), shape, jnp.float32)


def _small(plain: Network, learned: bool) -> Network:
    """A model's process, options and decoding with the network of :func:`_formula`."""

    def apply(_: Any, state: Any, times: Any, condition: Any = None) -> Any:
        return _formula(jnp, learned, state, times, condition)

    none = np.zeros((), np.float64)
    return replace(plain, apply=apply, weights=lambda: none, specs=None, dtype="float64")


def _formula(xp: Any, learned: bool, state: Any, times: Any, condition: Any = None) -> Any:
    """A network of (B, *shape), (B,) and (B, ...): every value depends on its neighbour, the time and the condition;
    with a ``learned`` variance, which depends on the state."""
    ones = (1,) * (state.ndim - 1)
    angle = times.reshape(-1, *ones)
    if condition is not None:
        values = condition.reshape(len(condition), -1)
        angle = angle + 0.9 * (values @ xp.arange(1, values.shape[1] + 1)).reshape(-1, *ones)
    # Bounded, so that no sampler diverges however many steps it takes.
    prediction = 0.8 * xp.sin(0.6 * state + angle) + 0.2 * xp.roll(state, 1, axis=-1)
    return xp.concatenate([prediction, xp.cos(state + angle)], axis=-1) if learned else prediction
