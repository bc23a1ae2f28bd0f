"""What crosses between processes is data, and what it says is checked."""

from __future__ import annotations

import ast
import io
import json
import os
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wdport
from tests.parity.fresh.test_fresh import files
from tests.parity.test_reports import passing
from wdport.base.errors import MisfitError, error_from
from wdport.compare.calls import Case
from wdport.models.interface import Signature
from wdport.parity.fresh.gate import FreshCase, PortAlone, draw_seed, fresh_cases, sample_error
from wdport.parity.fresh.process import _START, BrokenMessage, Message, from_json, receive, send, to_json
from wdport.parity.planned_items import expected
from wdport.parity.verdict_api import Verdict
from wdport.parity.verify_options import Pair
from wdport.recording.input_text import parse_input


def packed(facts: object, *blobs: bytes) -> io.BytesIO:
    text = json.dumps({"facts": facts, "sizes": [len(each) for each in blobs]}).encode()
    return io.BytesIO(struct.pack(">Q", len(text)) + text + b"".join(blobs))


def npy(array: np.ndarray, pickles: bool = False) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, allow_pickle=pickles)
    return file.getvalue()


def test_a_process_is_confined_before_any_library_starts_threads() -> None:
    """The kernel confines the calling thread and those that it starts, so threads of numpy or jax would be free."""
    code = _START.replace("main()", "") + "print(sorted({name.partition('.')[0] for name in sys.modules}))"
    command = [sys.executable, "-I", "-c", code, json.dumps(sys.path)]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    packages = set(ast.literal_eval(loaded)) - sys.stdlib_module_names
    assert "wdport" in packages
    assert packages.isdisjoint({"numpy", "jax", "keras", "torch", "msgspec", "yaml", "click"})


def test_a_message_arrives() -> None:
    stream = io.BytesIO()
    arrays = [np.arange(6.0).reshape(2, 3), np.array([True]), np.float32(1.5).reshape(())]
    send(stream, {"do": "run"}, arrays)
    stream.seek(0)
    got = receive(stream)
    assert got.facts == {"do": "run"}
    assert all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(got.arrays, arrays, strict=True))


@pytest.mark.parametrize(
    "stream",
    [
        io.BytesIO(b""),
        io.BytesIO(struct.pack(">Q", 1 << 60)),
        io.BytesIO(struct.pack(">Q", 2) + b"[]"),
        packed({}, npy(np.array([print], object), pickles=True)),
        packed({}, npy(np.array(["text"]))),
        packed({}, npy(np.ones(2)) + b"more"),
        packed({}, npy(np.ones(2))[:-1]),
        packed({}, b"\x80\x04N."),
    ],
    ids=["nothing", "too long", "no object", "pickles", "text", "more", "less", "a pickle"],
)
def test_what_is_no_message(stream: io.BytesIO) -> None:
    with pytest.raises(BrokenMessage):
        receive(stream)


def test_a_verdict_comes_back_as_it_was() -> None:
    verdict = replace(passing(), assumed={"num_heads": 8})
    told = json.loads(json.dumps(to_json(verdict)))
    assert from_json(Verdict, told) == verdict
    gate = told["gates"][0]
    for wrong in (None, {}, {**told, "more": 1}, {**told, "gates": [{**gate, "compared": "9"}]}, {**told, "taps": 1}):
        with pytest.raises((TypeError, ValueError)):
            from_json(Verdict, wrong)


def test_a_pair_comes_back_as_it_was() -> None:
    pair = Pair("a.keras", Path("a.pt"), inputs=("x: b 6",), values=(("dim", "8"), ("depth", "2")), cases=3)
    told = json.loads(json.dumps(to_json(pair)))
    assert from_json(Pair, told) == replace(pair, checkpoint="a.pt")


def test_an_error_comes_back_as_it_was() -> None:
    error = MisfitError((Path("a/b.pt"), "line 3"), "does not fit", "correct it", ["one", "two"])
    again = error_from(json.loads(json.dumps(error.as_data)))
    assert (type(again), str(again), again.details) == (MisfitError, str(error), error.details)


def test_no_sample_hides_behind_a_larger_one() -> None:
    right = np.array([[1e6, 1e6], [1.0, 1.0]])
    wrong = right + np.array([[0.0, 0.0], [1e-6, 0.0]])
    assert np.linalg.norm(wrong - right) / np.linalg.norm(right) < 1e-11
    assert sample_error(wrong, right) > 1e-10
    assert sample_error(right, right) == 0.0
    assert sample_error(right * np.nan, right) == np.inf
    assert sample_error(np.zeros((2, 2)), np.zeros((2, 2))) == 0.0


def test_cases_follow_from_a_seed_that_is_drawn() -> None:
    signature = Signature((parse_input("x: b t=9 5"),), free={"t": 2})
    first, again, other = (fresh_cases(seed, signature, True) for seed in (1, 1, 2))
    assert [str(each) for each in first] == [str(each) for each in again] != [str(each) for each in other]
    assert {each.case.batch for each in first} > {1}
    assert [each.weights for each in first].count(True) == 1
    longer = next(each for each in first if each.longer)
    assert longer.inputs(signature)[0].shape == (longer.case.batch, longer.longer["t"], 5)
    assert longer.longer["t"] in (11, 13, 15)
    assert len({draw_seed() for _ in range(5)}) == 5
    mixed = FreshCase(Case(3, 4, 1.0), mixed=True).inputs(signature)[0]
    sizes = np.abs(mixed).max(axis=(1, 2))
    assert sizes.max() / sizes.min() > 4


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return files(tmp_path_factory.mktemp("pair"), ["honest"])


def test_the_port_is_not_built_to_look_at_its_files(pair: dict[str, Any]) -> None:
    table = Path(pair["mapping"])
    other = table.with_name("other.yaml")
    other.write_text(table.read_text().replace("fresh.cheats:build", "fresh.nowhere:build"))
    asked = Pair(**{**pair, "mapping": str(other)})
    replace(asked, fresh=True).look()
    with pytest.raises(wdport.WdportError, match="no module named"):
        expected(asked)


@pytest.mark.full
def test_the_names_of_tests_come_from_another_process(pair: dict[str, Any]) -> None:
    told = expected(Pair(**pair))
    assert expected(Pair(**pair, fresh=True)) == replace(told, gates=(*told.gates, "N"))


_CHANNELS = """
import ctypes, os, sys
from wdport.parity.fresh.confinement import _refuse_calls
libc = ctypes.CDLL(None, use_errno=True)
file = sys.argv[1]
def call(function, *arguments):
    if getattr(libc, function)(*arguments) == -1:
        raise OSError(ctypes.get_errno(), function)
channels = {
    "shared memory": lambda: call("shmget", 0, 4096, 0o1600),
    "semaphores": lambda: call("semget", 0, 1, 0o1600),
    "messages": lambda: call("msgget", 0, 0o1600),
    "attributes": lambda: os.removexattr(file, "user.wdport"),
    "priority": lambda: os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0)),
    "process": lambda: os.pidfd_open(os.getppid()),
    "memory": lambda: call("process_vm_readv", os.getpid(), None, 0, None, 0, 0),
}
def refused():
    for name, channel in channels.items():
        try:
            channel()
        except OSError as error:
            if error.errno == 1:
                yield name
print(_refuse_calls(), [*refused()] == [*channels])
before = os.stat(file)
os.chmod(file, 0o777)
os.chown(file, 1, 1)
os.utime(file, (1, 1))
print(os.stat(file) == before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="seccomp is Linux's")
def test_calls_by_which_a_process_could_ask_another_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    command = [sys.executable, "-c", _CHANNELS, str(tmp_path / "file")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "True True\nTrue\n"


_MEMORY = """
import os
from wdport.parity.fresh.confinement import _part_from_others
def writable():
    try:
        open(f"/proc/{os.getppid()}/mem", "r+b").close()
    except PermissionError:
        return False
    return True
parted = _part_from_others()
os.makedirs("a")
open("file", "w").close()
os.rename("file", "a/file")  # as before
print(parted, writable())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Landlock is Linux's")
def test_the_process_of_the_layers_cannot_write_into_the_command(tmp_path: Path) -> None:
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _MEMORY]
    run = subprocess.run(command, cwd=tmp_path, env=path, capture_output=True, text=True, check=True)
    parted, writable = run.stdout.split()
    if parted == "False":
        pytest.skip("this kernel has no Landlock")
    assert writable == "False"


def test_forged_shapes_of_inputs_are_no_answer() -> None:
    class Forging:
        def answer(self) -> Message:
            return Message({"enforced": []})

        def ask(self, *_: object) -> Message:
            return Message({"inputs": [["seven"]]})

    forging: Any = Forging()
    assert PortAlone("float32", forging).failure == "its process gives no shapes of its inputs"
