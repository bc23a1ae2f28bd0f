"""The sections of help, and former names of options."""

from __future__ import annotations

import click
import pytest

from tests.cli.verbs import VERBS
from tests.command import Cli
from wdport.cli.verb import FEW, SECTIONS, VerbOption


@pytest.mark.parametrize("path", VERBS)
def test_help_lists_every_option_once(path: str, cli: Cli) -> None:
    lines = cli(*path.split(), "--help").out.splitlines()
    sections = {f"{title}:" for title in (*SECTIONS.values(), "Options")}
    lines = lines[next(n for n, line in enumerate(lines) if line in sections) :]
    context = click.Context(VERBS[path])
    options = [param for param in VERBS[path].get_params(context) if isinstance(param, click.Option)]
    shown = [max(option.opts, key=len) for option in options if not option.hidden]
    listed = [name for line in lines if line.startswith("  -") for name in shown if name in line.split("  ")[1].split()
              or f"{name}," in line.split("  ")[1].split()]  # fmt: skip
    titles = [line.removesuffix(":") for line in lines if line in {f"{title}:" for title in SECTIONS.values()}]
    assert sorted(listed) == sorted(shown)
    assert titles == ([] if len(shown) < FEW else [title for title in SECTIONS.values() if title in titles])
    assert len(titles) != 1


def test_a_former_name_is_read_as_the_present_one(cli: Cli) -> None:
    for words, former, present in (
        (["sample", "none.keras", "--batch", "0"], "--batch", "--batch-size"),
        (["sample", "none.keras", "--batch=0"], "--batch", "--batch-size"),
        (["export", "none.keras", "--batch", "x"], "--batch", "--batch-size"),
    ):
        note, error = cli(*words, code=2).err.splitlines()
        assert note.endswith(f"{former} is now called {present}")
        assert error.startswith(f"error: {present}: invalid value")


def test_quiet_is_quiet_about_former_names(cli: Cli) -> None:
    (error,) = cli("sample", "none.keras", "--batch", "0", "-q", code=2).err.splitlines()
    assert "--batch-size: invalid value" in error


def test_a_former_name_as_a_value_is_left(cli: Cli) -> None:
    """Of an option, and after ``--``."""
    cli("sample", "--sampler", "--batch", "none.keras", code=2)
    assert "now called" not in cli("sample", "--", "--batch", code=3).err


@pytest.mark.parametrize("path", VERBS)
def test_no_name_is_both_present_and_former(path: str) -> None:
    options = [param for param in VERBS[path].params if isinstance(param, VerbOption)]
    present = [name for option in options for name in option.opts]
    assert not {name for option in options for name in option.former} & set(present)


def test_an_option_is_a_flag_on_every_verb_or_on_none() -> None:
    flags: dict[str, set[bool]] = {}
    for command in VERBS.values():
        for option in command.params:
            if isinstance(option, VerbOption):
                flags.setdefault(max(option.opts, key=len), set()).add(option.is_flag)
    assert [name for name, found in flags.items() if len(found) > 1] == []
