"""Checkpoints by their names on the Hugging Face Hub: in the cache, fetched by ``huggingface_hub``, or refused."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.command import Refused
from wdport.base.errors import InputError
from wdport.checkpoint.hub import find_checkpoint, hub_name
from wdport.files.model_target import default_output

from .test_folders import cached, model

COMMIT = "a" * 40


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, in an empty working folder, without a connection."""
    (work := tmp_path / "work").mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return tmp_path / "hub"


def test_a_snapshot_in_the_cache(cache: Path) -> None:
    snapshot = cached(cache, "shards", "")
    for name in ("group/tiny", "group/tiny@main", f"group/tiny@{snapshot.name}"):
        assert find_checkpoint(name) == str(snapshot)
    for place in (snapshot, snapshot / "model.safetensors.index.json"):
        assert hub_name(place) == f"group/tiny@{snapshot.name}"
        assert default_output(place) == Path("tiny.keras")
    next(snapshot.glob("*-of-00002.safetensors")).unlink()  # an interrupted download
    with pytest.raises(InputError, match="HF_HUB_OFFLINE is set"):
        find_checkpoint("group/tiny")


def test_paths_are_no_names(cache: Path) -> None:
    cached(cache, "one", "")
    Path("group").mkdir()
    assert find_checkpoint("group/tiny") == "group/tiny"  # a file that is missing in this folder
    assert find_checkpoint("tiny.pt") == "tiny.pt"
    assert find_checkpoint("./group/tiny/x.pt") == "./group/tiny/x.pt"
    assert hub_name(Path("group/tiny")) is None


def test_names_that_are_not_there(cache: Path, refused: Refused) -> None:
    refused("inspect", "group/other", code=3, says="is no file, and not in the cache of the Hugging Face Hub")
    refused(
        "convert",
        "https://huggingface.co/group/tiny/resolve/main/x.bin",
        code=3,
        says="give its name on the Hub, group/tiny",
    )
    refused("convert", "https://example.org/x.pt", code=3, says="is a URL; download the file, and give its path")


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tuple[str, list[str]]]:
    """A server that answers as the Hub does for one repository; its address, and the files that were fetched."""
    (files := tmp_path / "repository").mkdir()
    model(files, "one")
    (files / "pytorch_model.bin").write_bytes(b"never read")
    fetched: list[str] = []

    class Answer(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            if self.path.startswith("/api/models/group/tiny/tree/"):
                listed = [{"type": "file", "path": path.name, "size": path.stat().st_size, "oid": "0" * 40}
                          for path in files.iterdir()]  # fmt: skip
                body = json.dumps(listed).encode()
            elif self.path.startswith("/api/models/group/tiny"):
                names = [{"rfilename": path.name} for path in files.iterdir()]
                body = json.dumps({"id": "group/tiny", "sha": COMMIT, "siblings": names}).encode()
            elif self.path.startswith(f"/group/tiny/resolve/{COMMIT}/"):
                path = files / self.path.rpartition("/")[2]
                body = path.read_bytes()
                fetched.append(path.name)
            else:
                self.send_response(404)
                self.send_header("X-Error-Code", "RepoNotFound")
                self.end_headers()
                return
            self.send_response(200)
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()}"')
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", fetched
    server.shutdown()
    server.server_close()


def test_safetensors_are_fetched_and_nothing_else(hub: tuple[str, list[str]], tmp_path: Path) -> None:
    address, fetched = hub
    environment = {**os.environ, "HF_ENDPOINT": address, "HF_HOME": str(tmp_path / "home"), "NO_PROXY": "127.0.0.1"}
    environment = {key: value for key, value in environment.items() if key not in ("HF_HUB_CACHE", "HF_HUB_OFFLINE")}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", "wdport", *words], env=environment, cwd=tmp_path,
                              capture_output=True, text=True, check=False)  # fmt: skip

    done = run("inspect", "group/tiny")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"group/tiny@{COMMIT}\n")
    assert set(fetched) == {"config.json", "model.safetensors"}
    count = len(fetched)
    assert run("inspect", f"group/tiny@{COMMIT}").returncode == 0
    assert len(fetched) == count  # from the cache
    done = run("inspect", "group/missing")
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert "the Hub says: 404" in done.stderr
