"""Gates samplers (H) and generation (I): correct programs pass, and edits of what users run are found by name."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

import wdport
from tests.edits import edit
from tests.make import SMALL
from tests.uses.masked_lm.make import SMALL as WORDS
from tests.uses.masked_lm.make import config_of, save, tensors_of
from tests.uses.sampling.toy import ABOUT, toy_network
from wdport.compare.findings import Gate
from wdport.models.interface import Clipping, Condition, Decoding, Diffused, Windowed, labels_of
from wdport.nets.attention import TokenAttention
from wdport.recording.float64 import lifted
from wdport.recording.runs import run
from wdport.uses.diffusion import flow, noise, plans, unmasking
from wdport.uses.diffusion import plans as repeat
from wdport.uses.diffusion import sampler_updates as updates
from wdport.uses.diffusion import schedules as steps
from wdport.uses.diffusion.process import Process
from wdport.uses.diffusion.scheduler_config import LEARNED_RANGE, Scheduler
from wdport.uses.diffusion.schedules import noise_schedule
from wdport.uses.gates.end_to_end import generation, samplers
from wdport.uses.gates.end_to_end.generation import SidePair, generation_gate
from wdport.uses.gates.end_to_end.samplers import samplers_gate
from wdport.uses.generation import api, prompts
from wdport.uses.generation.api import Generator
from wdport.uses.masked_lm.family import FAMILY as MASKED_LM
from wdport.uses.masked_lm.port import Block
from wdport.uses.sampling import condition as conditions
from wdport.uses.sampling import condition as known
from wdport.uses.sampling import data_windows, job, sampler
from wdport.uses.waveletdiff.family import FAMILY as WAVELETDIFF

CLASSES = replace(ABOUT, condition=labels_of(4, 3), clip=Clipping(1.5))
SCALED = replace(ABOUT, condition=Condition("scale", "positive", optional=True))
VECTORS = replace(ABOUT, condition=Condition("text", "real", (2,), null=-1.0))
DECODED = replace(ABOUT, decoding=Decoding((5, 3), lambda x: 2.0 * x, lambda x: 0.5 * x, (0.1,) * 3, (1.5,) * 3, ""))
WINDOWS = np.random.default_rng(0).uniform(0.5, 2.0, (9, 7))
STATISTICS = {"anchors": 50.0 * WINDOWS[:, 0], "atr_pcts": WINDOWS[:, 1], "vol_smas": WINDOWS[:, 2:]}
PRICES = replace(
    ABOUT, shape=(5, 5), decoding=Decoding((5, 5), lambda x: 0.5 * x, lambda x: 2.0 * x, (0.0,) * 5, (1.0,) * 5, ""),
    condition=Condition("scale", "positive", optional=True, statistic="atr_pcts"),
    windowed=Windowed("ohlc-atr", STATISTICS, 9),
)  # fmt: skip


def waveletdiff() -> Process:
    tables = noise_schedule("exponential")._asdict()
    return WAVELETDIFF.process(SMALL, lambda name: tables[name.removeprefix("noise_schedule.")])


THRESHOLDED = Scheduler(60, thresholding=True, dynamic_thresholding_ratio=0.8,
                        sample_max_value=1.3).process()  # fmt: skip
PROCESSES: dict[str, tuple[Process, Diffused]] = {
    "thresholded": (THRESHOLDED, replace(ABOUT, clip=THRESHOLDED.clip)),
    "classes": (Scheduler(60, clip=1.5).process(), CLASSES),
    "learned": (Scheduler(60, clip=1.5, variance_type=LEARNED_RANGE).process(), CLASSES),
    "known": (Scheduler(60, clip=None, prediction_type="v_prediction").process(), DECODED),
    "waveletdiff": (waveletdiff(), DECODED),
    "flow": (flow.Flow(), ABOUT),
    "flow to data": (flow.Flow("cosine", "sample"), replace(ABOUT, condition=labels_of(4, 3))),
    "scaled": (waveletdiff(), SCALED),
    "vectors": (flow.Flow(), VECTORS),
    "prices": (waveletdiff(), PRICES),
    "prices without a scale": (waveletdiff(), replace(PRICES, condition=None)),
}


def sampled(monkeypatch: pytest.MonkeyPatch, name: str, only: str = "", full: bool = False) -> Gate:
    """The gate for a port with this process, of the draws alone whose names begin with ``only``."""
    process, about = PROCESSES[name]
    clip = about.clip
    change = None if clip is None else lambda _, clean: clip.apply(clean, jax.numpy)
    network = replace(toy_network("float64"), process=lambda: process, about=about, change=change)
    every = list(samplers.draws(process, about, full))
    with monkeypatch.context() as patch:
        patch.setattr(samplers, "keras_network", lambda *_: network)
        patch.setattr(samplers, "draws", lambda *_, **__: [draw for draw in every if draw.name.startswith(only)])
        none: Any = None
        family: Any = SimpleNamespace(to_series=lambda _, states: 2.0 * states)
        return samplers_gate(none, family, none, process)


@pytest.mark.parametrize("name", PROCESSES)
def test_correct_samplers_pass(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = sampled(monkeypatch, name)
    assert gate.passed, list(map(str, gate.findings))
    subjects = [each.subject for each in gate.measures]
    assert gate.compared == gate.expected == len(subjects) + 1
    process, about = PROCESSES[name]
    assert {f"sampler {each}" for each in process.samplers} <= set(subjects)
    condition = about.condition
    assert any("guidance" in each for each in subjects) is (condition is not None and condition.null is not None)
    assert condition is None or any(condition.name in each for each in subjects)
    assert any("prices" in each for each in subjects) is (about.windowed is not None)
    known_values = isinstance(about.decoding, Decoding) and about.windowed is None
    assert any("known values" in each for each in subjects) is known_values
    assert gate.worst is not None
    assert gate.worst < 1e-13


def test_without_diffusers_its_samplers_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor those that take its steps; those that choose their own are. The gate says what to install."""
    monkeypatch.setitem(PROCESSES, "classes", (Scheduler(60, clip=1.5).process(), CLASSES))
    monkeypatch.setitem(__import__("sys").modules, "diffusers", None)
    gate = sampled(monkeypatch, "classes")
    assert (gate.outcome, gate.passed) == ("INCOMPLETE", False)
    subjects = {each.subject for each in gate.measures}
    assert subjects == {"sampler dpm++2m-sde", "karras spacing (dpm++2m)"}
    install = "diffusers: is not installed, and its DDPMScheduler is the reference; pip install 'wdport[diffusers]'"
    assert f"not everything is compared: {install}" in list(map(str, gate.findings))


@pytest.mark.full
@pytest.mark.parametrize("name", PROCESSES)
@pytest.mark.parametrize("target", ["noise", "sample", "velocity"])
@pytest.mark.parametrize("seed", range(3))
def test_no_false_alarms(name: str, target: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    process, about = PROCESSES[name]
    if name.startswith(("waveletdiff", "scaled", "prices")) and target == "velocity":
        pytest.skip("a WaveletDiff predicts the noise or the sample, and its loops know no other target")
    monkeypatch.setattr(samplers, "SEED", seed)
    monkeypatch.setitem(PROCESSES, name, (replace(process, target=target), about))  # type: ignore[type-var]
    gate = sampled(monkeypatch, name, full=True)
    assert gate.passed, list(map(str, gate.findings))


SAMPLER_EDITS: list[tuple[str, str, Callable[..., Any], str, str]] = [
    ("classes", "sampler dpm++2m", updates.dpm_solver, "before = length", "before = before or length"),
    ("classes", "sampler heun", updates.heun, "view.noise(then)", "view.noise(now)"),
    ("classes", "sampler dpm++2m-sde", updates.sde_dpm_solver, "sqrt(1.0 - decay) * z", "sqrt(decay) * z"),
    ("classes", "sampler dpm++2m-sde", steps.even_steps, "(ratios[-1], ratios[0], count)",
     "(ratios[-1], ratios[1], count)"),
    ("classes", "sampler probability-flow", updates.probability_flow, "log(then.signal / now.signal)",
     "then.signal - now.signal"),
    ("classes", "sampler unipc", updates.unipc, "- (first - share) * estimate", "+ (first - share) * estimate"),
    ("classes", "sampler ddim-textbook, eta 0.5", updates.ddim_textbook, "sigma * z", "eta * z"),
    ("classes", "guidance 2.5 (ddim)", conditions.guided, "= float(guidance)", "= 1.0 - float(guidance)"),
    ("flow to data", "guidance 2.5 (heun)", conditions.guided, "plain + weight", "conditional + weight"),
    ("learned", "guidance 2.5 (ddpm)", conditions.guided, "conditional[..., channels:]", "mixed[..., channels:]"),
    ("learned", "guidance 0.5 (ddpm)", conditions.guided, "conditional[..., channels:]", "plain[..., channels:]"),
    ("classes", "labels (ddim)", conditions._labels, "np.resize(labels, count)",
     "np.roll(np.resize(labels, count), 1)"),
    ("thresholded", "sampler ddim, eta 0.5", Clipping.apply, "xp.clip(level, 1.0, self.limit)",
     "xp.maximum(level, 1.0)"),
    ("scaled", "scale (ddim)", conditions._cycled, "np.resize(values, (count", "np.resize(values[::-1], (count"),
    ("scaled", "no scale (ddim)", conditions._without, "    return None", "    return np.ones(count)"),
    ("vectors", "guidance 2.5 (heun)", conditions.guided, "full_like(condition, null)", "zeros_like(condition)"),
    ("classes", "labels (ddim)", job.Job._batches, "condition[rows]", "condition[: len(rows)]"),
    ("known", "known values, repeated steps (ddim)", known._fitted, "decoding.decode(state)", "state"),
    ("waveletdiff", "known values, repeated steps (ddim)", repeat.repeated, "+ 1.0 - ratio**2", ""),
    ("waveletdiff", "noise of a seed", noise.sample_keys, "fold_in(key, index)", "fold_in(key, 0 * index)"),
    ("waveletdiff", "known values, noise of a seed", plans.SamplingPlan.draws.fget, "repeat * earlier", "earlier"),
    ("classes", "sampler unipc", sampler.Sampler.run, "if slots is None:",
     "carry = programs.carry(carry[0])\n            if slots is None:"),
    ("waveletdiff", "sampler ddpm", updates.ddpm, "now.beta / now.noise * ", "now.beta * "),
    ("flow to data", "sampler heun", flow.heun, "view.velocity(then)) / 2.0", "view.velocity(now)) / 2.0"),
    ("prices", "prices, scale given (ddim)", data_windows.restoring,
     "_conditioned(about.condition, condition, statistics)", "{}"),
    ("prices", "prices from an anchor, scale of the data (ddim)", data_windows.restoring,
     "_anchored(request.anchor, statistics, len(drawn))", "{}"),
    ("prices", "prices (ddim)", data_windows.restoring, "name: array[drawn]", "name: array[: len(drawn)]"),
    ("prices", "prices (ddim)", data_windows.Restoring._of, "array[indices]", "array[indices % 3]"),
    ("prices without a scale", "prices from an anchor (ddim)", data_windows.restoring,
     "_anchored(request.anchor, statistics, len(drawn))", "{}"),
    ("prices without a scale", "prices (ddim)", data_windows.drawn_windows, "request.seed, STREAM", "0, STREAM"),
    ("flow", "sampler rk4", flow.rk4, "length / 6.0", "length / 5.0"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "place", "function", "old", "new"), SAMPLER_EDITS)
def test_an_edit_of_sampling_is_found(
    name: str, place: str, function: Callable[..., Any], old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the place of the edit, and only there if it is a sampler's."""
    edit(monkeypatch, function, old, new)
    gate = sampled(monkeypatch, name, only=place)
    assert not gate.passed
    assert {each.subject for each in gate.findings} == {place}


TINY = {**WORDS, "vocab_size": 12, "hidden_size": 8, "intermediate_size": 6, "attention_bias": True}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> SidePair:
    folder = tmp_path_factory.mktemp("m")
    file = wdport.convert(save(folder / "m", TINY), folder / "m.keras").output
    models, modules = {}, {}
    for dtype in ("float64", "float32"):
        with jax.enable_x64(dtype == "float64"):
            models[dtype] = wdport.load_model(file, dtype)
        modules[dtype] = MASKED_LM.build_reference(config_of(TINY), tensors_of(TINY), dtype)

    def reference(dtype: str, tokens: Any, read: Any) -> Any:
        with lifted() if dtype == "float64" else nullcontext():
            return run(modules[dtype], (tokens.astype(np.int64), read))[0]

    return SidePair(MASKED_LM, models, reference)


def test_correct_generation_passes(pair: SidePair) -> None:
    gate = generation_gate(pair, full=False)
    assert gate.passed, list(map(str, gate.findings))
    assert gate.compared == gate.expected == 3 * (len(generation.RULES) + 1) + 3
    assert gate.worst is not None
    assert gate.worst < 1e-13


@pytest.mark.full
def test_correct_generation_passes_whole(pair: SidePair, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(4):
        monkeypatch.setattr(generation, "SEED", seed)
        gate = generation_gate(pair, full=True)
        assert gate.passed, list(map(str, gate.findings))
        assert gate.compared == 3 * (len(generation.RULES) + 1 + len(generation.OWN_RULES)) + 3


LOOP, NETWORK = "of a small network", "logits of the block program"

GENERATION_EDITS: list[Any] = [
    (LOOP, unmasking.committed, "argsort(-confidence", "argsort(jnp.where(jnp.isfinite(confidence), confidence, 9.0)"),
    (LOOP, api._joined, "refined.step_counts[-count:]", "refined.step_counts[:count]"),
    (LOOP, prompts.arranged, "visible[row, part], positions[row, part] = text[places], True, places",
     "visible[row, part], positions[row, part] = text[places], True, np.arange(len(places))"),
    *(pytest.param(*each, marks=pytest.mark.full) for each in (
        (LOOP, unmasking.quota, "open_count // steps + (step < open_count % steps)", "-(-open_count // steps)"),
        (LOOP, unmasking.edited, "(chosen != block) &", "(chosen == block) &"),
        (LOOP, Generator._run, "first + block", "first"),
        (LOOP, unmasking.committed, "confidence > threshold", "confidence > 2.0"),
        (LOOP, unmasking._refine_block, "(edits & jnp.any(~held, axis=1))", "edits"),
        (LOOP, unmasking._refine_block, "(posts <= settings.posts)", "(posts < 1)"),
        (LOOP, Generator._run, "within = visible[:, : prefix.shape[1]]", "within = True"),
    )),
    (NETWORK, Block.part, "self.mlp_norm(tokens)", "self.attention_norm(tokens)"),
    (NETWORK, Block.part, "cut(hidden_states) +", "cut(normed) +"),
    (NETWORK, TokenAttention.part, "cut(wave)[:, None]", "wave[:, None, :1]"),
]  # fmt: skip


@pytest.mark.parametrize(("place", "function", "old", "new"), GENERATION_EDITS)
def test_an_edit_of_generation_is_found(
    place: str, function: Callable[..., Any], old: str, new: str, pair: SidePair, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(monkeypatch, function, old, new)
    monkeypatch.setattr(generation, "RULES", generation.RULES[:3] if place == LOOP else ())
    if place == LOOP:
        monkeypatch.setattr(generation, "_compare_own", lambda *_: None)
    gate = generation_gate(pair, full=False)
    assert not gate.passed
    assert all(place in each.subject for each in gate.findings)
