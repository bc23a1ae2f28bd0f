"""What the machine or a library refuses: a line of its own and code 5, never a traceback, 1 or 70."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import click
import pytest

import wdport
import wdport.cli.inspect
from tests.bad.ground import ground
from tests.command import Cli
from tests.make import SET, SETTINGS, make_state, save
from wdport.base.errors import MachineError
from wdport.cli import machine
from wdport.cli.foreign_errors import failure_of
from wdport.cli.main import main
from wdport.uses.sampling.parts import Parts

FULL = "error: standard output: could not be written (No space left on device); free some space, or send it elsewhere\n"
CLOSED = FULL.replace("No space left on device", "Bad file descriptor").replace("free some space, or ", "")


@pytest.fixture(scope="module")
def pair() -> tuple[str, str]:
    return str(ground() / "good.ckpt"), str(ground() / "good.keras")


def shell(line: str, *arguments: str, **environment: str) -> tuple[int, str]:
    """The code and standard error of ``wdport`` in a shell; what stands for it is ``$W``."""
    before = {"W": f"{sys.executable} -m wdport", **environment}
    done = subprocess.run(["bash", "-c", line, "bash", *arguments], capture_output=True, text=True, check=False,
                          env={**os.environ, **before})  # fmt: skip
    return done.returncode, done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize(("words", "unbuffered"), [("--version", ""), ("", "1"), ("inspect $1", "1")])
def test_a_full_disk_under_standard_output(pair: tuple[str, str], words: str, unbuffered: str) -> None:
    assert shell(f"$W {words} >/dev/full", pair[1], PYTHONUNBUFFERED=unbuffered) == (5, FULL)


def test_a_terminal_without_utf_8(tmp_path: Path) -> None:
    """What it cannot show is escaped."""
    path = tmp_path / "жук.ckpt"
    save(path, make_state())
    line = "$W inspect $1 | grep -c u0436"
    assert shell(line, str(path), PYTHONIOENCODING="latin-1", LC_ALL="C") == (0, "")


def test_a_closed_standard_output(pair: tuple[str, str]) -> None:
    assert shell("$W inspect $1 >&-", pair[1]) == (5, CLOSED)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("to", ["2>&-", "2>/dev/full", "<&- >&- 2>&-"])
def test_a_code_has_to_do_where_nothing_can_be_said(to: str) -> None:
    """1 would mean that models differ, and 120 is Python's own."""
    assert shell(f"$W convert nope {to}") == (3, "")


def test_no_output_takes_the_number_of_a_closed_stream(pair: tuple[str, str], tmp_path: Path) -> None:
    """What is printed would be written into it."""
    output = tmp_path / "a.safetensors"
    assert shell(f"$W convert $1 -o $2 {' '.join(SET)} <&- >&- 2>&-", pair[0], str(output))[0] == 5
    said = wdport.convert(pair[0], tmp_path / "b.safetensors", values=SETTINGS).output.read_bytes()
    assert output.read_bytes() == said


GONE = """
import os, sys
from wdport.cli.main import main
read, write = os.pipe()
os.close(read)
for words in sys.argv[1:]:
    os.dup2(write, 1)
    print(main(words.split("|")), file=sys.stderr)
os.dup2(write, 1)
from wdport.cli.main import run
sys.argv = ["wdport", "--version"]
run()
"""


def test_the_reader_of_the_output_has_gone(pair: tuple[str, str], tmp_path: Path) -> None:
    """141 of every verb, for 1 would mean that models differ; what is written stays."""
    out, document = tmp_path / "a.npz", tmp_path / "a.json"
    words = ["--help", "map|--help", "verify|--help", f"inspect|{pair[1]}", f"map|diff|{pair[1]}|{pair[1]}|--json",
             f"map|check|nope|{pair[0]}", f"convert|{pair[0]}|-o|{out}|{'|'.join(SET)}|--json|{document}"]  # fmt: skip
    done = subprocess.run([sys.executable, "-c", GONE, *words], capture_output=True, text=True, check=False)
    codes = [line for line in done.stderr.splitlines() if not line.startswith("error: nope")]
    assert (done.returncode, codes) == (141, ["141"] * 5 + ["3", "141"])
    assert {path.name for path in tmp_path.iterdir()} == {"a.npz", "a.npz.wdport.json", "a.json"}


def raised(error: Exception, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """What the command line makes of an exception within a verb."""

    def command(file: str) -> int:
        raise error

    made = click.command("inspect")(click.argument("file")(command))
    monkeypatch.setattr(wdport.cli.inspect, "command", made)
    return main(["inspect", "a"]), capsys.readouterr().err


def test_a_traceback_of_own_code_is_given_where_it_is_wanted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_faulty.py").write_text("def build():\n    return undefined_name\n")
    monkeypatch.syspath_prepend(tmp_path)
    for debug in ("0", "1"):
        monkeypatch.setenv("WDPORT_DEBUG", debug)
        assert main(["map", "outline", "--reference", "own_faulty:build", "--input", "x: b 3"]) == 4
        err = capsys.readouterr().err
        assert err.splitlines()[-1].startswith("error: own_faulty:build: raises NameError")
        assert ("line 2, in build" in err) == (debug == "1")


TOLD: list[tuple[Exception, int, str]] = [
    (EOFError("Ran out of input"), 70, "error: EOFError: Ran out of input; a bug in wdport: set WDPORT_DEBUG=1 for"),
    (ValueError("odd"), 70, "error: ValueError: odd; a bug in wdport"),
    (MemoryError(), 5, "error: out of memory; free some, or use a machine with more"),
    (RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes"), 5, "error: out of memory; free some"),
    (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), 5, "error: out of memory"),
    (RuntimeError("can't start new thread"), 5, "error: out of memory"),
    (OSError(errno.ENOMEM, "Cannot allocate memory"), 5, "error: out of memory"),
    (OSError(errno.ENAMETOOLONG, "File name too long", "xx"), 3, "error: xx: cannot be opened (File name too long)"),
    (PermissionError(errno.EACCES, "Permission denied", "xx"), 5, "error: xx: permission denied; give this user read"),
    (OSError(errno.EIO, "Input/output error"), 5, "the system refuses (Input/output error); check its disk, limits"),
    (RuntimeError("a\x1b[31m\nb" * 200), 70, "error: RuntimeError: a\\x1b[31m\\nba"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "raises"), [("", False), ("0", False), ("1", True)])
def test_a_traceback_is_given_where_it_is_wanted(
    value: str, raises: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WDPORT_DEBUG", value)
    with pytest.raises(ValueError, match="odd") if raises else nullcontext():
        assert raised(ValueError("odd"), capsys, monkeypatch)[0] == 70


@pytest.mark.parametrize(("error", "code", "said"), TOLD, ids=[f"{type(e).__name__} {c}" for e, c, _ in TOLD])
def test_what_is_told(
    error: Exception, code: int, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    got, shown = raised(error, capsys, monkeypatch)
    assert (got, said in shown, shown.count("\n")) == (code, True, 1), shown
    assert len(shown) <= 241


def test_a_limit_of_addresses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wdport.cli.foreign_errors.address_limit", lambda: 512 << 20)
    said = str(failure_of(MemoryError()))
    assert said.startswith("out of memory: address space is limited to 512 MiB; raise the limit (ulimit -v): jax")
    assert "needs 2048, with torch 3072" in said


@pytest.mark.parametrize(
    ("library", "kind"), [("torch", "ImportError"), ("keras", "AttributeError"), ("jax", "OSError")]
)
def test_a_broken_library(pair: tuple[str, str], tmp_path: Path, library: str, kind: str) -> None:
    (tmp_path / library).mkdir()
    (tmp_path / library / "__init__.py").write_text(f"raise {kind}('lib.so: undefined symbol')")
    code, said = shell("$W verify $1 $2", *pair, PYTHONPATH=f"{tmp_path}:{os.getcwd()}")
    what = f"{library}: cannot be imported ({kind}: lib.so: undefined symbol); reinstall it, and check its"
    assert (code, said) == (5, f"error: {what} environment variables\n")


def test_a_flag_that_xla_does_not_know(pair: tuple[str, str]) -> None:
    """It ends the process with 1, which would mean that the models differ."""
    code, said = shell("$W verify $1 $2", *pair, XLA_FLAGS="--nonsense")
    assert (code, said) == (5, "error: XLA_FLAGS: Unknown flag in XLA_FLAGS: --nonsense; correct or unset it\n")


def test_a_flag_whose_value_is_wrong(pair: tuple[str, str]) -> None:
    code, said = shell("$W sample $2 -o $2.npz", *pair, XLA_FLAGS="--xla_cpu_multi_thread_eigen=maybe")
    assert (code, said.count("\n"), said.startswith("error: XLA_FLAGS: ")) == (5, 1, True), said


def test_a_sound_flag_is_let_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
    machine.require_jax()


def test_a_module_in_the_current_folder_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """In the process that tries XLA's flags."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
    for name in ("jaxlib", "json", "os"):
        (tmp_path / f"{name}.py").write_text(f"open('ran', 'a').write('{name}'); raise SystemExit(1)")
    machine._require_flags()
    assert not (tmp_path / "ran").exists()


def test_a_device_that_is_not_here(pair: tuple[str, str]) -> None:
    code, said = shell("$W export $2 -o $2.stablehlo", *pair, JAX_PLATFORMS="nonsense")
    assert (code, said.count("\n"), said.startswith("error: jax: finds no device (")) == (5, 1, True), said
    assert "check JAX_PLATFORMS" in said


@pytest.mark.skipif(sys.platform != "linux", reason="no limit of addresses")
@pytest.mark.parametrize("words", ["verify $1 $2", "export $2 -o $2.stablehlo"])
def test_too_few_addresses(pair: tuple[str, str], words: str) -> None:
    """A library ends the process by a signal where it gets none."""
    code, said = shell(f"ulimit -c 0; ulimit -v 1200000; $W {words}", *pair)
    assert (code, said.count("\n")) == (5, 1), said
    assert "address space is limited to 1171 MiB; " in said


def test_the_current_folder_is_gone(pair: tuple[str, str], tmp_path: Path) -> None:
    line = "mkdir $3/gone; cd $3/gone; rmdir $3/gone; $W sample $2 -o a.npz"
    said = "error: the current folder: can no longer be reached; change to another (cd)\n"
    assert shell(line, *pair, str(tmp_path), PYTHONPATH=os.getcwd()) == (5, said)


def test_samples_that_are_not_finite(
    pair: tuple[str, str], tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = Parts.save

    def save_odd(parts: Parts, start: int, block: dict) -> None:  # type: ignore[type-arg]
        changed = {name: array.copy() for name, array in block.items()}
        changed["series"][0, 3, 1] = float("nan" if start else "inf")
        keep(parts, start, changed)

    monkeypatch.setattr(Parts, "save", save_odd)
    words = ["-n", "4", "--chunk", "2", "--batch-size", "2", "--sampler", "ddim", "--steps", "1"]
    shown = cli("sample", pair[1], *words, "-o", tmp_path / "a.npz")
    assert shown.err == "warning: 2 of 4 samples have values that are not finite\n"
    assert (tmp_path / "a.npz").exists()


@pytest.mark.parametrize("code", [0, 1])
def test_a_verdict_outlives_its_reports(
    pair: tuple[str, str], tmp_path: Path, code: int, cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """It is printed, and the other reports are written; the code is that of the machine."""
    import wdport.parity.verify
    from tests.parity.test_reports import failing, passing

    made = failing() if code else passing()
    made = replace(made, environment={**made.environment, "torch_matmul": "highest", "jax_matmul": "highest"})
    assert made.exit_code == code

    def verify(*arguments: object, **options: object) -> object:
        (tmp_path / "sub").rmdir()  # the folder of a report, which was there when it was asked for
        return made

    monkeypatch.setattr(wdport.parity.verify, "compare_files", verify)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    (tmp_path / "sub").mkdir()
    words = ["--json", str(tmp_path / "sub" / "a.json"), "--junit", str(tmp_path / "a.xml")]
    shown = cli("verify", *pair, *words, "--markdown", tmp_path / "a.md", code=5)
    assert ("FAIL" if code else "PASS") in shown.out
    assert shown.err.startswith(f"error: {tmp_path / 'sub' / 'a.json'}: its folder does not exist; create the folder")
    assert {path.name for path in tmp_path.iterdir()} == {"a.xml", "a.md", "summary.md"}


def test_devices_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    import jax

    def none() -> None:
        raise AssertionError

    monkeypatch.setattr(jax, "local_devices", none)
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    with pytest.raises(MachineError, match=r"jax: finds no device \(JAX_PLATFORMS is cuda\)"):
        machine.start_jax()


@pytest.mark.parametrize(("requested", "used"), [("", "cpu"), ("cuda", "cuda"), ("cpu", "cpu")])
def test_comparisons_run_on_the_cpu_unless_another_platform_is_requested(
    requested: str, used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import jax

    seen: list[tuple[str, str | None]] = []
    before = jax.config.jax_platforms
    monkeypatch.setattr(
        machine, "start_jax", lambda: seen.append((os.environ["JAX_PLATFORMS"], jax.config.jax_platforms))
    )
    monkeypatch.setenv("JAX_PLATFORMS", requested)
    try:
        machine.start_jax_on_cpu()
    finally:
        jax.config.update("jax_platforms", before)
    # JAX itself read a variable that was set before it was imported.
    assert seen == [(used, before if requested else "cpu")]
