"""The memory limits of control groups, in trees of files as Linux has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from wdport.sampling.devices import group_bytes

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
