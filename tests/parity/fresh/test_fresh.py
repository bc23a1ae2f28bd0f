"""A port that cheats gets no PASS from `verify --fresh`; an honest one does."""

from __future__ import annotations

import json
import os
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch

import wdport
from tests.parity.fresh.cheats import CHEATS, by_torch, first_weights, write_whole
from wdport.cli.main import main
from wdport.compare.findings import Gate
from wdport.parity.file_pair import both_files
from wdport.parity.fresh.gate import fresh_gate
from wdport.parity.verify_options import Pair, described

TABLE = """
format: 2
torch: tests.parity.fresh.net:build
keras: tests.parity.fresh.cheats:{keras}
config: [names, folder]
inputs: ["x: b 6"]
layers:
  - {{torch: hidden, keras: hidden, kind: linear, then: tanh}}
  - {{torch: head, keras: head, kind: linear}}
"""

OUTSIDE = ("torch_callback", "torch_unhidden", "torch_subprocess", "torch_fork", "torch_shared", "torch_socket",
           "read_checkpoint", "read_natively")  # fmt: skip
"""Cheats that need what the port's process does not have: these are wrong in every case."""
NATIVE = ("torch_fork", "torch_shared", "read_natively")
"""Those of them that only the kernel can stop; elsewhere they fail with fresh weights."""


def files(folder: Path, names: list[str], keras: str = "build", suffix: str = ".safetensors") -> dict[str, Any]:
    """A checkpoint, its recording, a table and the converted file, as arguments of `wdport.verify`."""
    state = first_weights()
    torch.save({name: torch.from_numpy(array) for name, array in state.items()}, folder / "ck.pt")
    np.savez(folder / "run.npz", **state)
    (folder / "config.json").write_text(json.dumps({"names": names, "folder": str(folder)}))
    (folder / "table.yaml").write_text(TABLE.format(keras="build"))
    output = wdport.convert(folder / "ck.pt", folder / f"ck{suffix}", mapping=folder / "table.yaml").output
    (folder / "table.yaml").write_text(TABLE.format(keras=keras))
    return {"checkpoint": str(folder / "ck.pt"), "converted": str(output), "mapping": str(folder / "table.yaml")}


@contextmanager
def server(folder: Path) -> Iterator[None]:
    """A server on this machine that runs the reference on what it is sent, by a socket or in shared memory."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            values = np.frombuffer(self.rfile.read()).reshape(-1, 6)
            self.wfile.write(by_torch(values.copy()).tobytes())

    def answer(shared: Path) -> None:
        while not ended.wait(0.01):
            for question in shared.glob("*.question"):
                if not (written := question.with_suffix(".answer")).exists():
                    write_whole(written, by_torch(np.frombuffer(question.read_bytes()).reshape(-1, 6).copy()))

    ended = threading.Event()
    with (
        socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as serving,
        TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as shared,
    ):
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        thread = threading.Thread(target=answer, args=(Path(shared),), daemon=True)
        thread.start()
        (folder / "server.txt").write_text(str(serving.server_address[1]))
        (folder / "shared.txt").write_text(shared)
        yield
        serving.shutdown()
        ended.set()
        thread.join()


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Gate:
    """The gate of a port with one output per cheat."""
    folder = tmp_path_factory.mktemp("cheats")
    given = files(folder, list(CHEATS))
    pair = Pair(**given)
    with server(folder), both_files(pair, described(pair.converted, pair.own)) as both:
        return fresh_gate(both, lambda _: None)[0]


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_fails_by_its_own_output(judged: Gate, name: str) -> None:
    measures = [each for each in judged.measures if each.subject == f"output.{name}"]
    beyond = [each.beyond for each in measures]
    assert judged.complete
    assert len(measures) == 22 or name == "nan"
    refused = any(each.subject == f"output.{name}" for each in judged.findings)
    assert refused is (name != "honest")
    assert any(beyond) or name in ("honest", "nan")
    assert all(beyond) or name not in OUTSIDE or (name in NATIVE and "Landlock" not in str(judged.findings[-1]))


def verify(folder: Path, *more: str, suffix: str = ".safetensors") -> int:
    """The exit code of the command."""
    words = [str(folder / "ck.pt"), str(folder / f"ck{suffix}"), "--mapping", str(folder / "table.yaml")]
    return main(["verify", *words, "--fresh", "--json", str(folder / "verdict.json"), *more])


@pytest.mark.parametrize("suffix", [".safetensors", ".keras"])
def test_an_honest_port_passes(tmp_path: Path, suffix: str) -> None:
    files(tmp_path, ["honest"], suffix=suffix)
    assert verify(tmp_path, suffix=suffix) == 0
    told = json.loads((tmp_path / "verdict.json").read_text())
    assert told["passed"] is True
    assert {gate["name"] for gate in told["gates"]} == {"0", "A", "B", "N"}
    assert any(each.startswith("fresh: seed ") for each in told["inputs"])


def test_only_confined_processes_build_the_port_before_all_answers_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process could compute right answers for those that must not know them. An entry point beside the port
    that PyTorch would load runs nowhere."""
    files(tmp_path, ["honest"])
    entry = tmp_path / "beside-1.dist-info"
    entry.mkdir()
    (entry / "METADATA").write_text("Metadata-Version: 2.1\nName: beside\nVersion: 1\n")
    (entry / "entry_points.txt").write_text("[torch.backends]\nbeside = beside:load\n")
    (tmp_path / "beside.py").write_text(f"def load():\n    open({str(tmp_path / 'loaded')!r}, 'w').close()\n")
    monkeypatch.syspath_prepend(tmp_path)
    table, built = tmp_path / "table.yaml", tmp_path / "built.txt"
    table.write_text(table.read_text().replace("fresh.cheats:build", "fresh.takeovers:leaves_a_file"))
    before = []

    def watched(*arguments: Any) -> Any:
        result = fresh_gate(*arguments)
        before.append(built.exists())
        return result

    monkeypatch.setattr("wdport.parity.fresh.gate.fresh_gate", watched)
    assert verify(tmp_path) == 0
    assert (before, built.exists()) == ([False], True)
    assert not (tmp_path / "loaded").exists()


ATTACKS = ("ends_the_process", "raises_exit", "exits_at_the_end", "patches_the_measures", "patches_the_verdict",
           "patches_the_command", "writes_the_report", "answers_for_layers", "returns_objects", "forges_messages",
           "rewrites_the_program")  # fmt: skip


@pytest.mark.parametrize("attack", ["all_together", *(pytest.param(name, marks=pytest.mark.full) for name in ATTACKS)])
def test_a_port_that_attacks_the_program_gets_no_pass(tmp_path: Path, attack: str) -> None:
    attacked(tmp_path, attack)
    assert verify(tmp_path, "--force") != 0
    report = tmp_path / "verdict.json"
    assert not report.exists() or json.loads(report.read_text())["passed"] is False
    assert np.linalg.norm([3.0, 4.0]) == 5.0  # nothing of this process was changed


def attacked(folder: Path, attack: str) -> None:
    """Files of a pair whose port is wrong and attacks the program."""
    files(folder, ["wrong"])
    table = folder / "table.yaml"
    table.write_text(table.read_text().replace("fresh.cheats:build", f"fresh.takeovers:{attack}"))


@pytest.mark.full
def test_a_port_that_ends_its_parent(tmp_path: Path) -> None:
    """The command is a process of its own here, since it may be ended."""
    attacked(tmp_path, "ends_its_parent")
    words = ["verify", "ck.pt", "ck.safetensors", "--mapping", "table.yaml", "--fresh"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "wdport", *words]
    assert subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False).returncode != 0
