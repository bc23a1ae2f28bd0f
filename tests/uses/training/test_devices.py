"""Runs on many devices, of one process or several, have the losses of one device.

Devices are a CPU's, split by force, in three processes of their own: JAX settles their number once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wdport
from tests.uses.sampling.test_devices import ended, free_address, start
from tests.uses.training.points import points_in
from wdport.base.errors import UsageError
from wdport.uses.training.placement import placement_of

STATES = np.random.default_rng(0).normal([4.0, -3.0], 0.1, size=(70, 2))
"""In batches of 16 the last one of an epoch is filled up."""

PRELUDE = """
import json, os, sys
sys.path.insert(0, os.getcwd())
sys.path.insert(0, sys.argv[1])
import jax, numpy as np
jax.config.update("jax_enable_x64", True)
os.chdir(sys.argv[1])
address, process, out = sys.argv[2:5]
if address:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, 2, int(process))
import keras, wdport
from wdport.optimizers.torch_like import Adam

load = lambda: wdport.load_model("a.keras", mapping="flow.yaml", dtype="float64")
STATES, results = np.load("states.npy"), {}

def run(name, model=None, folder=None, **options):
    cycle = np.linspace(1e-2, 1e-3, 20)
    made = wdport.train(model or load(), STATES, folder or name, epochs=4, batch_size=16, ema=0.9, seed=5, **options,
                        validation_split=0.2, optimizer=Adam([{"weight_decay": 0.1}], rates=cycle, clip_norm=1.0))
    averaged = [float(np.sum(np.abs(one))) for one in made.averaged.values()]
    validated = [row["val_loss"] for row in made.epochs]
    results[name] = {"losses": made.losses, "averaged": averaged, "validated": validated}
"""

SHARDED = """
class Share(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        state = self.model._jax_state
        leaves = [*state["trainable_variables"], *state["optimizer_variables"]]
        own = sum(leaf.addressable_shards[0].data.nbytes for leaf in leaves)
        results["share"] = own / sum(leaf.nbytes for leaf in leaves)
run("sharded", folder=f"sharded{jax.process_count()}", devices="all", shard_weights=True, callbacks=[Share()])
"""

ALONE = """
run("one")
run("divided", devices="all")
try:
    wdport.train(load(), STATES, "refused", devices=8, batch_size=12, ema=0.9)
except wdport.WdportError as error:
    results["refused"] = str(error)

mesh = keras.distribution.DeviceMesh((4, 2), ("batch", "model"), keras.distribution.list_devices())
layouts = keras.distribution.LayoutMap(mesh)
layouts[".*kernel"] = (None, "model")
kinds = {"fit": None, "fit, data": keras.distribution.DataParallel(),
         "fit, model": keras.distribution.ModelParallel(layout_map=layouts, batch_dim_name="batch")}
from wdport.uses.training import network_training
options, steps = network_training.step_options, []
network_training.step_options = lambda dtype: steps.append(dtype) or options(dtype)
for name, kind in kinds.items():
    keras.distribution.set_distribution(kind)
    trained = wdport.training_model(load(), seed=5)
    trained.compile(optimizer=Adam([{"lr": 1e-2}], clip_norm=1.0))
    told = trained.fit(STATES[:64], batch_size=16, epochs=3, shuffle=False, verbose=0)
    spread = {str(one.value.sharding.spec) for one in trained.trainable_variables} if kind else set()
    results[name] = {"losses": told.history["loss"], "averaged": [], "spread": sorted(spread), "steps": len(steps)}

keras.distribution.set_distribution(kinds["fit, data"])
model = load()
run("keras", model)
assert len(model.trainable_variables[0].value.sharding.device_set) == 8
"""

WRITE = """
json.dump(results, open(out, "w"))
"""


def begin(folder: Path, text: str, devices: int, address: str, process: int) -> Any:
    """A program on so many devices; with an address it is a process of a run of two."""
    np.save(folder / "states.npy", STATES)
    return start(devices, "-c", PRELUDE + text + WRITE, str(folder), address, str(process),
                 str(folder / f"{address}{process}.json"))  # fmt: skip


def runs(folder: Path, *programs: tuple[str, int, str]) -> list[dict[str, Any]]:
    """What programs wrote, each on so many devices; those with an address are the processes of one run."""
    processes = [sum(address == other for _, _, other in programs[:at]) for at, (_, _, address) in enumerate(programs)]
    begun = [begin(folder, *each, process) for each, process in zip(programs, processes, strict=True)]
    for code, _, errors in ended(*begun):
        assert code == 0, errors[-3000:]
    return [json.loads((folder / f"{address}{process}.json").read_text())
            for (_, _, address), process in zip(programs, processes, strict=True)]  # fmt: skip


@dataclass(frozen=True)
class Results:
    """What was written by a process with eight devices, and by two of one run with four each, in ``folder``."""

    folder: Path
    alone: dict[str, Any]
    two: list[dict[str, Any]]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    address = free_address()
    with points_in(folder := tmp_path_factory.mktemp("devices")):
        alone, *two = runs(folder, (SHARDED + ALONE, 8, ""), (SHARDED, 4, address), (SHARDED, 4, address))
    return Results(folder, alone, two)


def assert_same(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert wanted["losses"][-1] < wanted["losses"][0]
    np.testing.assert_allclose(found["losses"], wanted["losses"], rtol=1e-10)
    for name in ("averaged", "validated"):
        np.testing.assert_allclose(found.get(name, []), wanted.get(name, []), rtol=1e-10)


def test_devices_do_not_change_losses(results: Results) -> None:
    """In float64, where only the order of sums differs; float32 has the same programs."""
    found = results.alone
    for name in ("divided", "sharded", "keras"):
        assert_same(found[name], found["one"])
    assert 1 / 8 <= found["share"] < 1 / 4


def test_fit_has_the_losses_and_options_of_one_device_under_keras_distributions(results: Results) -> None:
    found = results.alone
    assert [found[name]["steps"] for name in ("fit", "fit, data", "fit, model")] == [1, 2, 3]
    for name in ("fit, data", "fit, model"):
        assert_same(found[name], found["fit"])
    assert any("model" in each for each in found["fit, model"]["spread"])


def test_two_processes_have_the_losses_of_one(results: Results) -> None:
    for found in results.two:
        assert_same(found["sharded"], results.alone["one"])
    names = sorted(path.name for path in (results.folder / "sharded2").iterdir())
    assert names == ["metrics.csv", "run.json", "state.npz"]


def test_batches_are_multiples_of_the_devices(results: Results, points: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="shard_weights: there is only one device"):
        placement_of(None, True)
    with pytest.raises(UsageError, match="devices asked for"):
        wdport.train(points(), STATES, tmp_path / "run", devices=1000)
    assert "batch_size: is 12, on 8 devices; give a multiple of 8" in results.alone["refused"]
