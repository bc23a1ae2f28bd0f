"""Errors: one printable line that fits, with the place in front and the fix at the end."""

from __future__ import annotations

import ast
import inspect
import pickle
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wdport
from wdport.base import errors
from wdport.base.errors import InputError, MisfitError, UsageError, WdportError, printable
from wdport.base.limits import MAX_MESSAGE_CHARS

LONG = "level_transformers.0." * 40


def line_of(error: WdportError) -> str:
    """Its line as the command prints it, held to the rules of form."""
    line = f"error: {error}"
    assert line.isprintable()
    assert len(line) <= MAX_MESSAGE_CHARS
    return line


def test_a_short_error_is_shown_whole() -> None:
    error = InputError(("a.pt", "w.0"), "its offset is 3 of 2", "save it again")
    assert line_of(error) == "error: a.pt: w.0: its offset is 3 of 2; save it again"
    assert (error.where, error.what, error.fix) == ("a.pt: w.0", "its offset is 3 of 2", "save it again")
    assert line_of(InputError(Path("a") / "b.pt", "x", "y")) == "error: a/b.pt: x; y"
    assert line_of(MisfitError(("a.yaml", ""), "x", "y")) == "error: a.yaml: x; y"
    assert line_of(UsageError("", "x", "y")) == "error: x; y"


def test_exit_codes() -> None:
    codes = {
        "WdportError": 70, "UsageError": 2, "InputError": 3, "MisfitError": 4,
        "MachineError": 5, "IncompleteError": 6, "InternalError": 70,
    }  # fmt: skip
    assert {name: getattr(errors, name).exit_code for name in codes} == codes
    assert all(issubclass(getattr(errors, name), WdportError) for name in codes)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\x00\x7f\x85", "\\x00\\x7f\\x85"),
        ("\u202egnp.", "\\u202egnp."),
        ("\u2028\u200b\xa0", "\\u2028\\u200b\\xa0"),
        ("\udcff", "\\udcff"),
        ("\U000e0001", "\\U000e0001"),
        ("naïve λ 数 ✓", "naïve λ 数 ✓"),
    ],
)
def test_what_a_terminal_would_act_on_is_escaped(raw: str, shown: str) -> None:
    assert printable(raw) == shown
    assert line_of(InputError(raw, raw, raw)) == f"error: {shown}: {shown}; {shown}"
    assert InputError("x", "y", "z", [raw]).details == (shown,)


def test_a_long_name_loses_its_middle() -> None:
    name = f"begin{'x' * 500}end"
    short = printable(name, 50)
    assert len(short) == 50
    assert short.startswith("begin")
    assert short.endswith("end")
    assert short.count("…") == 1


@given(st.text(max_size=300), st.integers(2, 200))
def test_printable_keeps_its_promise(text: str, limit: int) -> None:
    shown = printable(text, limit)
    assert shown.isprintable()
    assert len(shown) <= limit
    if text.isprintable() and len(text) <= limit:
        assert shown == text


TEXT = st.one_of(st.text(max_size=30), st.text(min_size=100, max_size=400), st.just(LONG))


@given(st.lists(TEXT, max_size=3), TEXT, TEXT)
def test_any_error_is_one_line_that_fits(where: list[str], what: str, fix: str) -> None:
    line_of(InputError(tuple(where), what, fix))


@given(st.lists(TEXT, max_size=3), TEXT, st.text("abcdefg \n", min_size=1, max_size=60))
def test_the_fix_is_always_visible(where: list[str], what: str, fix: str) -> None:
    assert line_of(InputError(tuple(where), what, fix)).endswith(f"; {printable(fix)}")


def test_a_path_is_never_shortened() -> None:
    path = Path("folder") / ("deep/" * 80) / "model.pt"
    line = str(InputError((path, LONG), "its offset is 3 of 2", "save it again"))
    assert line.startswith(f"{path}: level_transformers")
    assert line.endswith(": its offset is 3 of 2; save it again")
    assert len(f"error: {line}") - len(str(path)) <= MAX_MESSAGE_CHARS


def test_a_long_fault_gives_way_to_a_long_fix() -> None:
    fix = "use one of " + ", ".join(f"choice_{i}" for i in range(12))
    line = line_of(InputError("a.pt", f"begin {LONG} end", fix))
    assert line.startswith("error: a.pt: begin ")
    assert line.endswith(f" end; {fix}")


def test_details_are_kept_line_by_line() -> None:
    error = MisfitError("a", "2 misfits", "correct it", (f"missing {name}" for name in ("x\n", LONG)))
    assert error.details[0] == "missing x\\n"
    assert len(error.details) == 2
    assert all(detail.isprintable() and len(detail) <= 480 for detail in error.details)


def test_an_error_survives_another_process() -> None:
    error = MisfitError(("a.pt", "w"), "x", "y", ["z"])
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.details) == (MisfitError, str(error), error.details)


WORDED = {
    "give one with `--mapping FILE`": "give one with mapping=FILE",
    "give `--config FILE` or `--set NAME=VALUE`": "give config=FILE or values={'NAME': 'VALUE'}",
    "convert with `--set wavelet=NAME --set seq_len=N`": "convert with values={'wavelet': 'NAME', 'seq_len': 'N'}",
    "leave out `--norm-stats` and `--data`": "leave out norm_stats= and data=",
    "use an undamaged checkpoint, or `--allow-nonfinite`": "use an undamaged checkpoint, or allow_nonfinite=True",
    "under `--strict`": "under strict=True",
    "give another name with `-o`, or `--force`": "give another name with output=, or force=True",
    "give `--input 'x: b 3 48 48'`, or not": "give inputs=['x: b 3 48 48'], or not",
    "use `--dtype bfloat16`": "use dtype='bfloat16'",
    "give `--max-memory 12MiB` or more": "give max_memory=12582912 or more",
    "give `--keras-model MODULE:FUNCTION`, your own": "give model=MODULE:FUNCTION, your own",
    "wdport inspect --tensors lists the names": "wdport inspect --tensors lists the names",
    "its file is --data FILE.csv": "its file is --data FILE.csv",
    "add `torch: MODULE:FUNCTION`": "add `torch: MODULE:FUNCTION`",
}


@pytest.mark.parametrize("text", WORDED)
def test_options_are_called_what_the_caller_calls_them(text: str) -> None:
    error = UsageError("--keras-model", text, text)
    assert str(error) == f"model=: {WORDED[text]}; {WORDED[text]}"
    plain = re.sub("`(-[^`]*)`", r"\1", text)
    assert error.command_line == f"--keras-model: {plain}; {plain}"
    assert (error.what, error.fix) == (plain, plain)
    assert str(errors.error_from(error.as_data)) == str(error)


def test_the_users_own_text_is_not_reworded() -> None:
    error = UsageError(("a --data FILE.pt", "--keras-model"), "has no --key EMA", "correct it")
    assert str(error) == error.command_line == "a --data FILE.pt: --keras-model: has no --key EMA; correct it"


def test_every_argument_exists() -> None:
    """Held against the signatures of the public functions, not against a list."""
    known = {name for call in (wdport.convert, wdport.verify, wdport.verify_recording, wdport.sample,
                                  wdport.load_optimizer)
             for name in inspect.signature(call).parameters}  # fmt: skip
    assert {argument.rstrip("=").removesuffix("=True") for argument in errors.ARGUMENTS.values()} <= known


def test_python_raises_no_flag_that_it_has_another_name_for() -> None:
    """Over the package's own errors: an option that is an argument in Python stands in backticks."""
    kinds = {kind.__name__ for kind in WdportError.__subclasses__()} | {"Fault", "UnsupportedTensor"}
    plain, marked = [], 0
    for path in Path(wdport.__file__).parent.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") in kinds and "cli" not in path.parts:
                texts = [node.value for argument in call.args[1:] for node in ast.walk(argument)
                         if isinstance(node, ast.Constant) and isinstance(node.value, str)]  # fmt: skip
                marked += sum(text.count("`-") for text in texts)
                plain += [text for text in texts for name in errors.ARGUMENTS
                          if re.search(rf"(?<![`\w-]){name}\b", text)]  # fmt: skip
    plain = [text for text in plain if "wdport sample --transform" not in text]  # a command, in Python as well
    assert (plain, marked > 30) == ([], True)


IS_NO_PATH = "{}: is {}, not a path; give a str or a pathlib.Path"
TYPES: list[tuple[Callable[[], object], str]] = [
    (lambda: wdport.convert(3), IS_NO_PATH.format("checkpoint", "of type int")),
    (lambda: wdport.convert(b"a.ckpt"), IS_NO_PATH.format("checkpoint", "of type bytes")),
    (lambda: wdport.convert("a", config={"heads": 4}), IS_NO_PATH.format("config", "of type dict")),
    (lambda: wdport.load_model(None), IS_NO_PATH.format("path", "None")),
    (lambda: wdport.verify("a", 3), IS_NO_PATH.format("converted", "of type int")),
    (lambda: wdport.verify_recording({}, "a"), IS_NO_PATH.format("converted", "of type dict")),
    (lambda: wdport.convert("a", max_memory="12XB"),
     "max_memory: is '12XB', not a number of bytes; give an int, such as 512 << 20"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "said"), TYPES)
def test_an_argument_of_another_type_is_named(call: Callable[[], object], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        call()
    assert str(caught.value) == said
