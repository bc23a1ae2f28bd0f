"""Every option of `verify` is declared once; the command, the plugin, the action and the pages have those options."""

from __future__ import annotations

from dataclasses import fields
from inspect import signature
from itertools import pairwise
from math import inf, nan
from typing import Any, get_args

import numpy as np
import pytest

import wdport
from tests.option_surfaces import ROOT, written
from wdport.base.errors import UsageError
from wdport.base.options import Argument, Interval, Range, Unrecorded, interval_of, options_of, require_within
from wdport.cli.verify import command
from wdport.parity.verify_options import Pair, PairOptions, RunOptions

OPTIONS = {**options_of(PairOptions), **options_of(RunOptions)}


def test_files_are_what_the_declarations_make() -> None:
    """If not: make options."""
    different = [path.name for path, text in written().items() if path.read_text(encoding="utf-8") != text]
    assert different == []


def test_every_field_declares_its_option() -> None:
    names = [field.name for request in (PairOptions, RunOptions) for field in fields(request)]
    assert names == list(OPTIONS)
    assert {each.name for each in fields(Pair)} == set(options_of(PairOptions))


def test_the_command_has_the_declared_options() -> None:
    flags = {each.name: tuple(each.opts) for each in command.params if each.name not in ("files", "quiet", "verbose")}
    assert flags == {name: each.flags for name, each in OPTIONS.items() if not each.marker(Argument)}
    names = list(flags)
    assert ("fresh", "no_fresh") in pairwise(names)
    assert [name for name in names if name != "no_fresh"] == [
        name for name, each in OPTIONS.items() if name != "no_fresh" and not each.marker(Argument)
    ]


def test_python_takes_the_options_of_a_pair() -> None:
    """With their defaults. Of the others, a recording has its own function, and Python hashes a file by itself."""
    parameters = signature(wdport.verify).parameters
    declared = options_of(PairOptions)
    assert set(declared) - set(parameters) == {"against", "sha256"}
    for name in set(declared) & set(parameters) - {"checkpoint", "converted", "resume", "values"}:
        assert parameters[name].default == declared[name].default, name


GIVEN: dict[str, Any] = {bool: True, int: 1, str: "a", tuple: (("a", "b"),)}


@pytest.mark.parametrize("name", [name for name, each in OPTIONS.items() if each.marker(Unrecorded)])
def test_a_recording_excludes_it(name: str) -> None:
    each = OPTIONS[name]
    given = {name: GIVEN.get(each.base, "file")}
    Pair("a.keras", "a.ckpt", **given).require_consistent()
    with pytest.raises(UsageError, match=str(each.marker(Unrecorded))):
        Pair("a.keras", against="run.npz", **given).require_consistent()


def test_verbs_declare_their_options_in_requests() -> None:
    """Not by decorators of click, in which an option stands a second time as a parameter."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "wdport" / "cli").glob("*.py")}
    assert [name for name, text in texts.items() if "@click.option" in text or "@click.argument" in text] == []


def test_ranges_mean_what_they_say() -> None:
    assert {name: str(interval_of(name)) for name in get_args(Range)} == {
        name: f"a number {name}" for name in get_args(Range)
    }


BOUNDS: list[tuple[Any, tuple[Any, ...], tuple[Any, ...], str]] = [
    ((1, 9), (1, 9, np.int64(3), None), (0, 10, 2.0, True, "3", nan), "a whole number from 1 to 9"),
    ("above 0", (5e-324, 1e308, 3, np.float32(1)), (0, -1.0, inf, nan, True, "1"), "a number above 0"),
    ("from 0 to 1", (0, 1, 0.5), (-1e-9, 1.01, nan), "a number from 0 to 1"),
    ("from 0 and below 1", (0, 0.999), (1, 1.0, -1, nan), "a number from 0 and below 1"),
    (Interval(0.1, 1000), (0.1, 1000), (0.09, 1001, inf), "a number from 0.1 to 1000"),
]


@pytest.mark.parametrize(("bounds", "inside", "outside", "words"), BOUNDS, ids=[words for *_, words in BOUNDS])
def test_values_are_within_bounds(bounds: Any, inside: Any, outside: Any, words: str) -> None:
    require_within(bounds, **{f"value {index}": value for index, value in enumerate(inside)})
    for value in outside:
        with pytest.raises(UsageError) as raised:
            require_within(bounds, rate=value)
        assert str(raised.value) == f"rate: invalid value {value!r}; give {words}"
