"""Every scheduler class of diffusers is sampled as the library samples it, or refused by name."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.uses.diffusion.scheduler_file import read_steps
from tests.uses.diffusion.test_scheduler import SHAPE, library, tape_states
from wdport.checkpoint.model_folder import read_adjacent
from wdport.uses.diffusion.noise_levels import LEVEL_CLASSES, NoiseLevels
from wdport.uses.diffusion.scheduler_config import (
    CLASSES,
    IMPLEMENTED,
    OWN_STEPS,
    SCHEDULES,
    TARGETS,
    VARIANCES,
    Scheduler,
    read_scheduler,
)
from wdport.uses.diffusion.schedules import WHOLE

diffusers = pytest.importorskip("diffusers", exc_type=ImportError)

pytestmark = pytest.mark.filterwarnings("ignore:__array_wrap__")

COUNT, LAST = 12, 100
"""So many steps of so many are whole numbers by every spacing."""

VALUES: dict[str, list[Any]] = {
    "beta_schedule": [*SCHEDULES, "exp", "laplace"],
    "beta_start": [1e-4, 1e-3],
    "beta_end": [0.02, 0.03],
    "prediction_type": [*TARGETS, "flow_prediction"],
    "variance_type": [*VARIANCES, "learned", None],
    "timestep_spacing": list(WHOLE),
    "steps_offset": [0, 1],
    "clip_sample_range": [0.7, 1.0],
    "timestep_type": ["discrete", "continuous"],
    "final_sigmas_type": ["zero", "sigma_min"],
}
"""What a random configuration draws from; flags are drawn too, other fields have the class's defaults."""


def classes() -> Iterator[str]:
    from diffusers.schedulers.scheduling_utils import SchedulerMixin

    for name in sorted(dir(diffusers)):
        found = getattr(diffusers, name)
        if isinstance(found, type) and issubclass(found, SchedulerMixin) and found is not SchedulerMixin:
            yield name


def signature(name: str) -> dict[str, Any]:
    parameters = inspect.signature(getattr(diffusers, name).__init__).parameters
    return {each.name: each.default for each in parameters.values() if each.name not in ("self", "kwargs")}


def saved(folder: Path, name: str, **fields: Any) -> dict[str, Any]:
    """The file that the library saves, as it is read; classes with required values are written by hand."""
    needed = [field for field, value in signature(name).items() if value is inspect.Parameter.empty]
    if needed:
        folder.mkdir(exist_ok=True)
        document = {"_class_name": name, **dict.fromkeys(needed, 8)}
        (folder / "scheduler_config.json").write_text(json.dumps(document))
    else:
        getattr(diffusers, name)(**fields).save_pretrained(folder)
    return read_adjacent(folder, "scheduler_config.json")


def as_ddim(document: dict[str, Any]) -> dict[str, Any]:
    """The fields that the library's DDIM takes of another class's file; without clipping if that does not clip."""
    return {"clip_sample": False, **{name: document[name] for name in signature("DDIMScheduler") if name in document}}


@pytest.mark.parametrize("name", CLASSES)
def test_the_table_has_the_librarys_fields_and_defaults(name: str) -> None:
    assert dict(CLASSES[name]) == signature(name)
    assert IMPLEMENTED.keys() & signature(name).keys() <= CLASSES[name].keys()


@pytest.mark.parametrize("name", list(classes()))
def test_every_class_is_the_librarys_or_refused_by_name(name: str, tmp_path: Path) -> None:
    document = saved(tmp_path / "a", name)
    if name in LEVEL_CLASSES:
        assert read_scheduler(document) == NoiseLevels.from_fields(name, LEVEL_CLASSES[name])
        return
    if name not in CLASSES:
        with pytest.raises(ValueError, match=f"^_class_name '{name}' is not supported$"):
            read_steps(document)
        return
    document = saved(tmp_path / "a", name, num_train_timesteps=LAST)
    found = read_steps(document)
    _require_process(name, document, found)
    rng = np.random.default_rng(0)
    init, tape = rng.standard_normal(SHAPE), rng.standard_normal((COUNT, *SHAPE))
    kind = name if name in OWN_STEPS and "Parallel" not in name else "DDIMScheduler"
    fields = as_ddim(document) if kind == "DDIMScheduler" else {k: document[k] for k in signature(kind)}
    truth = library(kind, fields, COUNT, 0.0, init, tape, narrow=False)
    plan = found.process().plan(
        "ddim" if kind == "DDIMScheduler" else "ddpm", COUNT, changed=found.clipping is not None
    )
    np.testing.assert_allclose(tape_states(plan, init, tape, found.clipping), truth, rtol=1e-9, atol=1e-9)


def _require_process(name: str, document: dict[str, Any], found: Scheduler) -> None:
    """The library's class shows the network what the reading says, and with a network that knows the data, in the
    reading's terms, its own steps end there."""
    import torch

    scheduler = getattr(diffusers, name).from_config(document)
    bars = found.schedule().alpha_bar[1:]
    levels = np.log(1.0 / bars - 1.0) / 2.0  # of sigma, between steps as the library interpolates it
    rng = np.random.default_rng(1)
    data, noise = (torch.tensor(rng.uniform(-0.6, 0.6, (1, 8)), dtype=torch.float32) for _ in range(2))
    scheduler.set_timesteps(COUNT)
    x = noise * scheduler.init_noise_sigma
    for t in scheduler.timesteps:
        sigma = float(np.exp(np.interp(float(t), np.arange(len(bars)), levels)))
        signal, spread = 1.0 / np.sqrt(1.0 + sigma**2), sigma / np.sqrt(1.0 + sigma**2)
        if float(t).is_integer():
            noisy = scheduler.scale_model_input(scheduler.add_noise(data, noise, t[None]), t)
            np.testing.assert_allclose(noisy, signal * data + spread * noise, rtol=2e-3, atol=2e-3, err_msg=f"{t}")
        shown = scheduler.scale_model_input(x, t)
        guess = (shown - signal * data) / spread
        made = {"noise": guess, "sample": data, "velocity": signal * guess - spread * data}[found.target]
        x = scheduler.step(made, t, x).prev_sample
    np.testing.assert_allclose(x, data, atol=0.1, err_msg="the library's own steps")


@pytest.mark.parametrize("name", [name for name in CLASSES if name not in LEVEL_CLASSES])
def test_random_configurations(name: str, tmp_path: Path) -> None:
    rng, read, refused = np.random.default_rng(5), 0, set()
    init, tape = rng.standard_normal(SHAPE), rng.standard_normal((COUNT, *SHAPE))
    for _ in range(60):
        fields: dict[str, Any] = {"num_train_timesteps": LAST}
        for field, usual in signature(name).items():
            pool = [False] * 7 + [True] if isinstance(usual, bool) else VALUES.get(field, [usual])
            fields[field] = pool[int(rng.integers(len(pool)))] if field not in fields else LAST
        document = {"_class_name": name, **fields}
        try:
            found = read_steps(document)
        except ValueError as error:
            field = re.match(r"\w+", str(error))
            assert field is not None
            assert document[field[0]] != CLASSES[name][field[0]], "a default was refused"
            refused.add(field[0])
            continue
        read += 1
        if found.beta_schedule == "sigmoid":
            continue  # the library's DDIM does not have it
        plan = found.process().plan("ddim", COUNT, changed=found.clipping is not None)
        ours = tape_states(plan, init, tape, found.clipping)
        truth = library("DDIMScheduler", as_ddim(document), COUNT, 0.0, init, tape, narrow=False)
        np.testing.assert_allclose(ours, truth, rtol=1e-9, atol=1e-9, err_msg=str(document))
    assert read
    assert refused >= IMPLEMENTED.keys() & {each for each, usual in signature(name).items() if usual is False}


def test_fields_of_another_class_are_read_only_without_effect() -> None:
    """The library keeps them when it converts a configuration."""
    euler = {"_class_name": "EulerDiscreteScheduler", "num_train_timesteps": LAST}
    kept = {"skip_prk_steps": True, "set_alpha_to_one": False, "clip_sample": False, "tensor_format": "pt"}
    found = read_steps({**euler, **kept})
    assert (found.clip, found.set_alpha_to_one, found.timestep_spacing) == (None, False, "linspace")
    with pytest.raises(ValueError, match="clip_sample is set, which EulerDiscreteScheduler does not have"):
        read_steps({**euler, **kept, "clip_sample": True})
    with pytest.raises(ValueError, match="unknown field 'snr_shift_scale' of EulerDiscreteScheduler"):
        read_steps({**euler, "snr_shift_scale": 3.0})
