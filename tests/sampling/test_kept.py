"""A job fills the parts that are missing, saves as often as it is told, and says how far it is; batch sizes."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest

from tests.make import SMALL
from tests.sampling.toy import toy_programs
from wdport.families.waveletdiff.config import Config
from wdport.families.waveletdiff.family import FAMILY
from wdport.families.waveletdiff.port import WaveletDiff
from wdport.sampling import devices as memory
from wdport.sampling.devices import auto_batch, group_bytes, sample_bytes
from wdport.sampling.job import Job
from wdport.sampling.output import auto_chunk, fill_parts
from wdport.sampling.parts import Parts
from wdport.sampling.sampler import Sampler, plan_of, programs_of


@pytest.fixture(scope="module")
def sampler() -> Sampler:
    programs = toy_programs()
    return Sampler(programs, plan_of(programs.network, "ddim", 100), 2)


def test_parts_are_saved_every_so_many_chunks(sampler: Sampler, tmp_path: Path) -> None:
    told: list[float] = []
    with Parts(tmp_path / "a.npz", {}) as parts:
        fill_parts(Job(sampler, 11, 2), parts, save_every=2, done=told.append)
        names = sorted(file.name for file in parts.folder.glob("*.npz"))
        drawn = np.concatenate([block["series"] for block in parts.blocks()])
    assert [name.split("-")[:2] for name in names] == [
        ["000000000", "000000004"], ["000000004", "000000008"], ["000000008", "000000011"]]  # fmt: skip
    assert drawn.shape == (11, 5, 3)
    assert told == sorted(told)
    assert told[-1] == 11.0
    assert told[0] == 0.0  # when all is compiled
    assert 0.0 < told[1] < 2.0


def test_parts_are_few_and_whole_batches() -> None:
    counts = (1, 64, 2000, 10_000, 1_000_000)
    assert [auto_chunk(count, 64, 8) for count in counts] == [64, 64, 64, 320, 31_232]
    assert [auto_chunk(count, 64, 1 << 15) for count in counts] == [64, 64, 64, 256, 256], "8 MiB at most"
    assert auto_chunk(1_000_000, 64, 1 << 30) == 64


def test_what_is_there_is_not_drawn_again(sampler: Sampler, tmp_path: Path) -> None:
    with Parts(tmp_path / "a.npz", {}) as parts:
        fill_parts(Job(sampler, 4, 2), parts)
        marked = {name: np.full((2, 5, 3), 7.0, np.float32) for name in ("coefficients", "series")}
        parts.save(2, marked)
        fill_parts(Job(sampler, 6, 2), parts)
        blocks = [block["coefficients"] for block in parts.blocks()]
    assert [len(block) for block in blocks] == [2, 2, 2]
    assert np.array_equal(blocks[1], marked["coefficients"])
    assert not np.array_equal(blocks[2], blocks[0])


def test_batches_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = FAMILY.diffused(SMALL).numbers
    per_sample = sample_bytes(numbers, "float32")
    assert sample_bytes(numbers, "float64") == 2 * per_sample == 8 * numbers
    for free, count, expected in ((1 << 40, 1000, 64), (1 << 40, 10, 10), (20 * per_sample, 1000, 10), (1, 1000, 1)):
        monkeypatch.setattr(memory, "free_bytes", lambda free=free: free)
        assert auto_batch(numbers, "float32", count) == expected


def test_free_memory_is_known() -> None:
    assert 1 << 20 < memory.free_bytes() < 1 << 50


def test_the_estimate_covers_what_the_compiler_asks_for() -> None:
    """At a length where attention weights count."""
    config = Config((64, 64, 128, 256), 2, 8, 2, 1, 8, wavelet="db2", boundary_mode="symmetric", seq_len=500)
    model = WaveletDiff(config)
    programs = programs_of(model)
    state = jax.ShapeDtypeStruct((8, config.coefficients, config.features), np.float32)
    network = programs.network

    times = jax.ShapeDtypeStruct((8,), np.float32)
    compiled = jax.jit(network.apply).lower(network.weights(), state, times).compile()
    asked = compiled.memory_analysis().temp_size_in_bytes
    assert 0 < asked <= 8 * sample_bytes(network.about.numbers, "float32") + (1 << 20)


MB = 1 << 20
SECOND = ("sys/fs/cgroup", "0::{}", ("memory.max", "memory.current", "inactive_file"))
FIRST = (
    "sys/fs/cgroup/memory",
    "7:cpu,cpuacct:/else\n4:memory:{}",
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
UNLIMITED = {SECOND: "max", FIRST: "9223372036854771712"}


def group(folder: Path, names: tuple[str, str, str], limit: int | str, used: int, cached: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 1\n{names[2]} {cached}\n")


@pytest.mark.parametrize("kind", [SECOND, FIRST], ids=("version 2", "version 1"))
def test_the_tightest_group_counts(tmp_path: Path, kind: tuple[str, str, tuple[str, str, str]]) -> None:
    mount, line, names = kind
    told = tmp_path / "proc/self/cgroup"
    told.parent.mkdir(parents=True)
    told.write_text(line.format("/job/step") + "\n")
    assert group_bytes(tmp_path) is None
    # in a container: the path is the machine's, and what is seen at the mount is the container's own group
    group(tmp_path / mount, names, 1000 * MB, 990 * MB, 900 * MB)
    assert group_bytes(tmp_path) == 910 * MB, "files in memory make room"
    # under a batch system: the job's limit is tighter than that of the step within it
    group(tmp_path / mount / "job", names, 300 * MB, 100 * MB, 0)
    group(tmp_path / mount / "job/step", names, UNLIMITED[kind], 50 * MB, 0)
    assert group_bytes(tmp_path) == 200 * MB
    group(tmp_path / mount / "job/step", names, 50 * MB, 60 * MB, 0)
    assert group_bytes(tmp_path) == 0, "never less than nothing"


def test_no_groups_no_limit(tmp_path: Path) -> None:
    assert group_bytes(tmp_path) is None
