"""Samples on many devices, of one process or several, are those of one device.

Devices are a CPU's, split by force, in processes of their own: jax settles their number once.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import wdport
from tests.compiler import compiler_flags
from tests.uses.sampling.toy import SHAPE, toy_programs
from wdport.base.errors import UsageError
from wdport.cli.machine import parse_devices
from wdport.uses.sampling.devices import DeviceSpread, spread_over
from wdport.uses.sampling.job import Job
from wdport.uses.sampling.parts import Parts
from wdport.uses.sampling.sampler import Sampler, Samples, plan_of

ROOT = Path(__file__).parents[3]
FAST = ["--sampler", "ddim", "--steps", "10", "--eta", "0.5", "--seed", "3", "-n", "11"]

RUN = "from wdport.cli.main import run; run()"
TOY = """
import sys
import jax, numpy as np
from tests.uses.sampling.test_devices import toy_samples
from wdport.uses.sampling.devices import spread_over
address, process, path = sys.argv[1:]
if address:
    jax.distributed.initialize(address, 2, int(process))
spread = spread_over("all")
made, sampler = toy_samples(spread)
assert spread.count == 8 and len(jax.devices()) == 8, jax.devices()
assert sampler.programs.drawn._cache_size() == sampler.programs.taped._cache_size() == 1
held = sampler.spread.weights({"a": np.ones(3)})["a"]
assert len(held.devices()) == len(jax.local_devices()) and held.is_fully_replicated
np.savez(path, **made)
"""


def toy_samples(spread: DeviceSpread | None) -> tuple[dict[str, np.ndarray], Sampler]:
    """11 samples in chunks of 8 or the next multiple, drawn and from given noise, in 101 steps: two segments."""
    programs = toy_programs()
    sampler = Sampler(programs, plan_of(programs.network, "ddim", 100, 0.5), 5, spread)
    rng = np.random.default_rng(0)
    init, tape = rng.standard_normal((11, *SHAPE)), rng.standard_normal((sampler.plan.slots, 11, *SHAPE))
    drawn = Samples.join(list(Job(sampler, 11, 5).draw()))
    given = Samples.join(list(Job(sampler, 11, 5, init=init, tape=tape).draw()))
    made = {"drawn": drawn.coefficients, "series": drawn.series, "given": given.coefficients}
    return {name: values for name, values in made.items() if values is not None}, sampler


def start(devices: int, *arguments: str) -> subprocess.Popen[str]:
    flags = f"{compiler_flags()} --xla_force_host_platform_device_count={devices}"
    environment = {"XLA_FLAGS": flags, "JAX_COMPILATION_CACHE_DIR": str(jax.config.jax_compilation_cache_dir)}
    return subprocess.Popen([sys.executable, *arguments], cwd=ROOT, env=os.environ | environment, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip


def ended(*processes: subprocess.Popen[str]) -> list[tuple[int, str, str]]:
    """Exit code, output and errors of each."""
    try:
        said = [process.communicate(timeout=300) for process in processes]
        return [(process.wait(), *texts) for process, texts in zip(processes, said, strict=True)]
    finally:
        for process in processes:
            process.kill()


def free_address() -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{found.getsockname()[1]}"


@pytest.mark.parametrize("processes", [pytest.param(1, marks=pytest.mark.full), 2])
def test_devices_do_not_change_samples(processes: int, tmp_path: Path) -> None:
    """8 devices: of one process, or 4 of each of two. All processes get all samples."""
    address = free_address() if processes > 1 else ""
    paths = [tmp_path / f"{i}.npz" for i in range(processes)]
    said = ended(*(start(8 // processes, "-c", TOY, address, str(i), str(path)) for i, path in enumerate(paths)))
    assert [code for code, _, _ in said] == [0] * processes, said
    wanted, _ = toy_samples(None)
    for path in paths:
        with np.load(path) as made:
            assert sorted(made.files) == sorted(wanted)
            for name, values in wanted.items():
                assert made[name].shape == values.shape
                np.testing.assert_allclose(made[name], values, rtol=2e-5, atol=1e-5)


SHARDED = """
import sys
import jax, numpy as np, wdport
from wdport.uses.sampling import programs_of, spread_over
path, model = sys.argv[1], wdport.load_model(sys.argv[2])
given = dict(sampler="ddim", steps=10, eta=0.5, seed=3, devices="all", shard_weights=True)
made = wdport.sample(model, 11, **given)
spread = spread_over("all", shard_weights=True)
leaves = jax.tree.leaves(spread.weights(programs_of(model).network.weights()))
held = sum(leaf.addressable_shards[0].data.nbytes for leaf in leaves)
np.savez(path, coefficients=made.coefficients, series=made.series, share=held / sum(leaf.nbytes for leaf in leaves))
"""


@pytest.mark.full
def test_devices_share_the_weights(converted: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    (said,) = ended(start(8, "-c", SHARDED, str(path), str(converted)))
    assert said[0] == 0, said
    with np.load(path) as made:
        assert 1 / 8 < made["share"] < 1 / 4
    require_samples(path, converted)


def require_samples(path: Path, model: Path) -> None:
    """The file has the samples of one device."""
    wanted = wdport.sample(wdport.load_model(model), 11, sampler="ddim", steps=10, eta=0.5, seed=3)
    with np.load(path) as made:
        for name, values in wanted.arrays.items():
            np.testing.assert_allclose(made[name], values, rtol=1e-3, atol=1e-4 * np.abs(values).max())


def test_one_device_has_nothing_to_share() -> None:
    with pytest.raises(UsageError, match=r"shard_weights: there is only one device; ask for several"):
        spread_over(None, shard_weights=True)


def test_two_processes_write_one_file(converted: Path, tmp_path: Path) -> None:
    """The command as it is given on two machines; the first writes, the second says nothing."""
    address, path = free_address(), tmp_path / "a.npz"
    command = ("-c", RUN, "sample", str(converted), *FAST, "-o", str(path), "--distributed")
    said = ended(*(start(4, *command, f"{address},{i}/2") for i in (0, 1)))
    assert [code for code, _, _ in said] == [0, 0], said
    assert "devices       8, of 2 processes\n  batches       of 16;" in said[0][1]
    assert "of 2 processes" not in said[1][1]  # XLA's collectives have their say there, in whole lines and halves
    require_samples(path, converted)
    assert [file.name for file in tmp_path.iterdir()] == ["a.npz"]


@pytest.mark.full
def test_processes_with_different_commands_stop(converted: Path, tmp_path: Path) -> None:
    address, path = free_address(), tmp_path / "a.npz"
    command = ("-c", RUN, "sample", str(converted), *FAST, "-o", str(path))
    said = ended(*(start(1, *command, "--eta", eta, "--distributed", f"{address},{i}/2")
                   for i, eta in enumerate(("0.5", "0.25"))))  # fmt: skip
    assert [code for code, _, _ in said] == [2, 2], said
    assert all("the processes have different commands, models or devices; start all" in each[2] for each in said)
    assert list(tmp_path.iterdir()) == []


def test_a_refusal_of_the_first_process_ends_the_others(converted: Path, tmp_path: Path) -> None:
    """They would wait for it, and it for them, until jax gives up after minutes."""
    address, path = free_address(), tmp_path / "a.npz"
    with Parts(path, {"n": 11, "batch": 11}) as parts:
        parts.save(0, {"coefficients": np.zeros((1, 26, 3), np.float32)})
    command = ("-c", RUN, "sample", str(converted), *FAST, "-o", str(path))
    said = ended(*(start(1, *command, "--distributed", f"{address},{i}/2") for i in (0, 1)))
    assert [code for code, _, _ in said] == [2, 5], said
    assert "holds parts of another run" in said[0][2]
    assert "--distributed: the first process cannot begin; see its output" in said[1][2]


@pytest.mark.full
def test_a_process_that_dies_ends_the_first(converted: Path, tmp_path: Path) -> None:
    """At once, with what is finished kept; jax waits for five minutes at its end, and aborts."""
    address, path = free_address(), tmp_path / "a.npz"
    words = ["--sampler", "ddim", "--steps", "10", "-n", "200000", "--batch-size", "8", "--chunk", "8", "-o", str(path)]
    both = [start(1, "-c", RUN, "sample", str(converted), *words, "--distributed", f"{address},{i}/2") for i in (0, 1)]
    while both[0].poll() is None and not list(tmp_path.glob("a.npz.parts/0*.npz")):
        time.sleep(0.1)
    both[1].kill()
    killed = time.monotonic()
    said = ended(*both)
    assert (said[0][0], said[1][0]) == (5, -9), said
    assert time.monotonic() - killed < 60
    assert "error: --distributed: another process has ended (" in said[0][2]
    assert list(tmp_path.glob("a.npz.parts/0*.npz"))


def test_a_batch_is_a_multiple_of_the_devices() -> None:
    spread = DeviceSpread(jax.local_devices()[:1], processes=4, process=2)
    assert [spread.batch(size) for size in (1, 4, 5, 64)] == [4, 4, 8, 64]
    assert spread.own(np.arange(8)).tolist() == [4, 5]
    assert spread.own(np.arange(8).reshape(1, 8), axis=1).tolist() == [[4, 5]]
    assert spread.memories == 4


def test_weights_are_copied_once() -> None:
    spread, weights = DeviceSpread(jax.local_devices()[:1]), {"a": jax.numpy.ones(3), "b": np.zeros(2)}
    placed = spread.weights(weights)
    assert spread.weights(dict(weights)) is placed
    assert spread.weights({**weights, "b": np.ones(2)})["b"].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("devices", [0, 1000, "some", True, 1.5])
def test_devices_that_are_not_here(devices: Any) -> None:
    with pytest.raises(UsageError, match=r"^devices: .*; give .*all"):
        spread_over(devices)


@pytest.mark.parametrize(
    ("devices", "distributed", "expected"),
    [("0", None, "--devices: invalid device count '0'"), ("many", None, "give a whole number of at least 1, or all"),
     (None, "here", "invalid process 'here'; write for example 127.0.0.1:7801,0/2"),
     (None, "a:1,2/2", "invalid process")],
)  # fmt: skip
def test_texts_that_name_no_devices(devices: str | None, distributed: str | None, expected: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_devices(devices, distributed)
    assert expected in str(raised.value)


def test_texts_that_name_devices() -> None:
    given = [(None, None), ("all", None), ("3", None), (None, "auto"), ("2", "a:1,0/2")]
    assert [parse_devices(*each)[0] for each in given] == [None, "all", 3, "all", 2]
