"""Runs on many devices, of one process or several, have the losses of one device.

Devices are a CPU's, split by force, in processes of their own: JAX settles their number once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wdport
from tests.sampling.test_devices import ended, free_address, start
from wdport.errors import UsageError
from wdport.training.placement import placement_of

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
from tests.training.test_devices import STATES
from wdport.optimizers.torch_like import Adam

def give(told, **more):
    total = [float(np.sum(np.abs(one))) for one in told.averaged.values()]
    json.dump({"losses": told.losses, "averaged": total, **more}, open(out, "w"))

def run(model, folder, **given):
    cycle = np.linspace(1e-2, 1e-3, 20)
    return wdport.train(model, STATES, folder, optimizer=Adam([{"weight_decay": 0.1}], rates=cycle, clip_norm=1.0),
                        epochs=4, batch_size=16, ema=0.9, seed=5, **given)

load = lambda: wdport.load_model("a.keras", mapping="flow.yaml", dtype="float64")
"""

ONE = "give(run(load(), 'one'))"
ALL = "give(run(load(), 'all', devices='all'))"
SHARDED = """
from wdport.training.loop import Loop
after, held = Loop._take, []
def take(self, *given):
    after(self, *given)
    leaves = jax.tree.leaves([self.state["trained"], self.state["optimizer"]])
    held.append(sum(leaf.addressable_shards[0].data.nbytes for leaf in leaves) / sum(leaf.nbytes for leaf in leaves))
Loop._take = take
give(run(load(), 'sharded', devices='all', shard_weights=True), share=held[-1])
"""
KERAS = """
keras.distribution.set_distribution(keras.distribution.DataParallel())
model = load()
told = run(model, 'keras')
assert len(model.trainable_variables[0].value.sharding.device_set) == 8
give(told)
"""
FIT = """
mesh = keras.distribution.DeviceMesh((4, 2), ("batch", "model"), keras.distribution.list_devices())
layouts = keras.distribution.LayoutMap(mesh)
layouts[".*kernel"] = (None, "model")
kinds = {"data": lambda: keras.distribution.DataParallel(),
         "model": lambda: keras.distribution.ModelParallel(layout_map=layouts, batch_dim_name="batch")}
if process in kinds:
    keras.distribution.set_distribution(kinds[process]())
trained = wdport.training_model(load(), seed=5)
trained.compile(optimizer=Adam([{"lr": 1e-2}], clip_norm=1.0))
told = trained.fit(STATES[:64], batch_size=16, epochs=3, shuffle=False, verbose=0)
spread = {str(one.value.sharding.spec) for one in trained.trainable_variables} if process in kinds else set()
json.dump({"losses": told.history["loss"], "averaged": [], "spread": sorted(spread)}, open(out, "w"))
"""


def runs(
    folder: Path, *programs: tuple[str, int], address: str = "", names: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """What programs, each on so many devices, wrote; with an address they are processes of one run."""
    outs = [folder / f"{at}.json" for at in range(len(programs))]
    begun = [start(devices, "-c", PRELUDE + text, str(folder), address, names[at] if names else str(at), str(out))
             for at, ((text, devices), out) in enumerate(zip(programs, outs, strict=True))]  # fmt: skip
    for code, _, errors in ended(*begun):
        assert code == 0, errors[-3000:]
    return [json.loads(out.read_text()) for out in outs]


def assert_same(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    np.testing.assert_allclose(found["losses"], wanted["losses"], rtol=1e-10)
    np.testing.assert_allclose(found["averaged"], wanted["averaged"], rtol=1e-10)


def test_devices_do_not_change_losses(points: Any, tmp_path: Path) -> None:
    """In float64, where only the order of sums differs; float32 has the same programs."""
    one, divided, sharded, by_keras = runs(tmp_path, (ONE, 1), (ALL, 8), (SHARDED, 8), (KERAS, 8))
    assert one["losses"][-1] < one["losses"][0]
    for found in (divided, sharded, by_keras):
        assert_same(found, one)
    assert 1 / 8 <= sharded["share"] < 1 / 4


def test_fit_has_the_losses_of_one_device_under_keras_distributions(points: Any, tmp_path: Path) -> None:
    one, data, model = runs(tmp_path, (FIT, 8), (FIT, 8), (FIT, 8), names=("one", "data", "model"))
    assert one["losses"][-1] < one["losses"][0]
    assert any("model" in each for each in model["spread"])
    for found in (data, model):
        assert_same(found, one)


def test_two_processes_have_the_losses_of_one(points: Any, tmp_path: Path) -> None:
    one, *_ = runs(tmp_path, (ONE, 1))
    for text in (ALL, SHARDED):
        for found in runs(tmp_path, (text, 4), (text, 4), address=free_address()):
            assert_same(found, one)
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == ["metrics.csv", "run.json", "state.npz"]


def test_batches_are_multiples_of_the_devices(points: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="shard_weights: there is only one device"):
        placement_of(None, True)
    with pytest.raises(UsageError, match="devices asked for"):
        wdport.train(points(), STATES, tmp_path / "run", devices=1000)
    text = "give(wdport.train(load(), STATES, 'run', devices=8, batch_size=12, ema=0.9))"
    (said,) = ended(start(8, "-c", PRELUDE + text, str(tmp_path), "", "0", str(tmp_path / "a.json")))
    assert said[0] == 1
    assert "batch_size: is 12, on 8 devices; give a multiple of 8" in said[2]
