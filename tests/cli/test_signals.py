"""SIGINT and SIGTERM in a process of its own: the exit code, one line at most, and nothing left behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.make import SET, make_state, save
from wdport.cli.console import console
from wdport.cli.main import main

WHILE_WRITING = """
import gc, signal, sys, time
import wdport.files.safetensors_writer as file

signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored in what a shell starts in the background

def endless(*arguments):
    {arrives}
    for _ in range(3000):
        time.sleep(0.01)  # in steps: a signal between Python's last look and the system call would wait for the end

file.SafetensorsWriter.write_at = endless
from wdport.cli.main import run
run()
"""

FROM_OUTSIDE = 'print("writing", flush=True)'

COLLECTING = """
    def within(phase, info):  # as jax's own callback is at times
        gc.callbacks.remove(within)
        signal.raise_signal(signal.SIGINT)

    gc.callbacks.append(within)
    gc.collect()
"""

SIGNALS = (signal.SIGINT, signal.SIGTERM)
SAID = {
    signal.SIGINT: "error: interrupted; nothing was changed\n",
    signal.SIGTERM: "error: terminated; nothing was changed\n",
}


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    checkpoint = save(tmp_path / "small.ckpt", make_state())
    return ["convert", str(checkpoint), "-o", str(tmp_path / "small.safetensors"), *SET]


@pytest.mark.parametrize("number", SIGNALS)
def test_it_ends_and_leaves_nothing(command: list[str], tmp_path: Path, number: signal.Signals) -> None:
    code = WHILE_WRITING.format(arrives=FROM_OUTSIDE)
    with subprocess.Popen(
        [sys.executable, "-c", code, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "writing\n"
        process.send_signal(number)
        assert (process.wait(20), process.stderr.read()) == (128 + number, SAID[number])
    assert [path.name for path in tmp_path.iterdir()] == ["small.ckpt"]


def test_it_is_not_lost_in_a_collection(command: list[str], tmp_path: Path) -> None:
    """Where Python drops the exception and says "Exception ignored"."""
    code = WHILE_WRITING.format(arrives=COLLECTING)
    done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, timeout=25)
    assert (done.returncode, done.stderr) == (130, SAID[signal.SIGINT])
    assert [path.name for path in tmp_path.iterdir()] == ["small.ckpt"]


def test_what_is_written_by_then_is_told(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An interruption while the summary is made, say: both files are there and stay."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("wdport.cli.convert._text", interrupted)
    assert main(command) == 130
    names = [f"{tmp_path}/small.safetensors{more}" for more in ("", ".wdport.json")]
    assert capsys.readouterr().err == f"error: interrupted; {' and '.join(names)} were written\n"
    assert all(Path(name).exists() for name in names)
    monkeypatch.setattr("wdport.conversion.convert.convert", interrupted)
    assert main([*command, "--force"]) == 130
    assert capsys.readouterr().err.strip() == "error: interrupted; nothing was changed"


IMPORTING = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)

class Finder:  # as a signal arrives in the first import; as an extension module then says it
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            sys.meta_path.remove(self)
            try:
                signal.raise_signal({number})
            except KeyboardInterrupt as error:
                raise {raised} from error

sys.meta_path.insert(0, Finder())
from wdport.cli.main import run
sys.argv = ["wdport", "map", "check", "nope"]
run()
"""


@pytest.mark.parametrize(
    ("number", "name", "raised"),
    [(signal.SIGINT, "click", "error"), (signal.SIGTERM, "numpy", "ImportError('KeyboardInterrupt')"),
     (signal.SIGINT, "wdport.conversion.check", "ImportError('KeyboardInterrupt')")],
)  # fmt: skip
def test_it_may_arrive_in_an_import(number: signal.Signals, name: str, raised: str) -> None:
    """Of wdport itself at the start, or of a library later: no traceback, and no advice to install it again."""
    code = IMPORTING.format(number=int(number), name=name, raised=raised)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=25, check=False)
    assert (done.returncode, done.stderr) == (128 + number, SAID[number])


def test_a_terminal_has_ctrl_c_in_the_line_before(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("wdport.cli.console._terminal", lambda stream: stream is sys.stderr)
    monkeypatch.setenv("NO_COLOR", "1")
    console.interrupted("interrupted; nothing was changed")
    assert capsys.readouterr().err == "\n" + SAID[signal.SIGINT]
