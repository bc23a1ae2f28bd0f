"""Files that options name and that never end, never come, or take far more than their bytes."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from tests.command import Cli
from wdport.base.errors import InputError, WdportError
from wdport.checkpoint.faults import Fault
from wdport.checkpoint.model_folder import read_config
from wdport.checkpoint.regular_file import read_option, read_small
from wdport.mapping.strict_yaml import read_yaml
from wdport.mapping.table import load_table
from wdport.parity.policy.baseline import read_baseline
from wdport.parity.policy.policy import read_policy
from wdport.uses.data import read_series, read_statistics

READERS: dict[str, tuple[Callable[[Path], object], type[WdportError], str]] = {
    "--config": (lambda path: read_yaml(path, "give it"), InputError, "x.yaml"),
    "--mapping": (load_table, InputError, "x.yaml"),
    "--policy": (lambda path: read_policy(path, date(2026, 1, 1)), InputError, "x.toml"),
    "--baseline": (read_baseline, InputError, "x.json"),
    "--norm-stats": (read_statistics, InputError, "x.json"),
    "--norm-stats npz": (read_statistics, InputError, "x.npz"),
    "--data": (read_series, InputError, "x.csv"),
    "--data npy": (read_series, InputError, "x.npy"),
    "config.json": (read_config, InputError, "config.json"),
}


def refused(option: str, path: Path) -> str:
    read, kind, _ = READERS[option]
    with pytest.raises(WdportError) as caught:
        read(path)
    assert type(caught.value) is kind
    return str(caught.value)


@pytest.mark.parametrize("option", READERS)
def test_what_is_no_regular_file(option: str, tmp_path: Path) -> None:
    """At once: a pipe has no writer, a device no end."""
    path = tmp_path / READERS[option][2]
    os.mkfifo(path)
    assert "pipe" in refused(option, path) or "not a regular file" in refused(option, path)
    path.unlink()
    path.symlink_to("/dev/zero")
    assert "device" in refused(option, path) or "not a regular file" in refused(option, path)
    path.unlink()
    path.mkdir()
    assert "directory" in refused(option, path)


@pytest.mark.parametrize("option", [name for name in READERS if name not in ("--norm-stats npz", "--data npy")])
def test_a_file_of_a_terabyte(option: str, tmp_path: Path) -> None:
    path = tmp_path / READERS[option][2]
    path.touch()
    os.truncate(path, 1 << 40)
    assert "1099511627776 bytes" in refused(option, path)


def test_what_the_system_makes_up_as_it_is_read() -> None:
    """Its size is 0 and its contents are not."""
    assert read_small("/proc/self/status", 1 << 20).startswith(b"Name:")
    with pytest.raises(Fault, match="more than 10 bytes"):
        read_small("/proc/self/status", 10)


def test_the_advice_is_the_callers(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="none: no such file; give it"):
        read_option(tmp_path / "none", 10, "give it")
    with pytest.raises(InputError, match="zero byte"):
        read_option("a\0b", 10, "give it")


JSON = {
    "a key twice": (b'{"mean": [1], "mean": [2], "std": [1]}', "duplicate key 'mean'"),
    "deep": (b'{"mean": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "not valid JSON"),
    "an integer of 400 digits": (b'{"mean": [1' + b"0" * 400 + b'], "std": [1]}', "mean is not a list of numbers"),
    "an integer of 100,000 digits": (b'{"mean": [' + b"9" * 100_000 + b'], "std": [1]}', "not valid JSON"),
    "1e400": (b'{"mean": [1e400], "std": [1]}', "mean of feature 1 is inf"),
    "true": (b'{"mean": [true], "std": [1]}', "mean is not a list of numbers"),
    "many lists": (b'{"mean": [' + b"[]," * 300_000 + b"[]]}", "more than 500000 brackets"),
    "many values": (b'{"mean": [' + b"1," * 150_000 + b'1], "std": [1]}', "mean has 150001 values, more than"),
}


@pytest.mark.parametrize("case", JSON)
def test_statistics(case: str, tmp_path: Path) -> None:
    content, message = JSON[case]
    (tmp_path / "x.json").write_bytes(content)
    assert message in refused("--norm-stats", tmp_path / "x.json")


@pytest.mark.parametrize(
    "arguments",
    [
        ("sample", "x.keras", "--batch-size", "9" * 100_000),
        ("sample", "x.keras", "--chunk", "9" * 100_000),
        ("sample", "x.keras", "-n", "1" + "0" * 400),
        ("export", "x.keras", "--batch-size", "1" + "0" * 400),
    ],
    ids=lambda arguments: " ".join(arguments)[:40],
)
def test_absurd_numbers_are_a_usage_error(arguments: tuple[str, ...], cli: Cli) -> None:
    assert len(cli(*list(arguments), code=2).err) <= 241
