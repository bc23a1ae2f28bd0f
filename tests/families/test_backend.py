"""Which backend Keras gets: JAX, unless the user chose another one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.make import SET, SETTINGS, make_state, save
from wdport.families.backend import AUTOMATIC, choose_backend

ROOT = Path(__file__).parents[2]


def run(folder: Path, code: str, backend: str | None = None) -> subprocess.CompletedProcess[str]:
    """A Python program in an environment whose Keras configuration lies in ``folder``."""
    environment = {name: value for name, value in os.environ.items() if name != "KERAS_BACKEND"}
    environment |= {"KERAS_HOME": str(folder), "PYTHONPATH": str(ROOT)}
    if backend is not None:
        environment["KERAS_BACKEND"] = backend
    return subprocess.run([sys.executable, "-c", code], env=environment, cwd=folder, capture_output=True, text=True)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keras's folder, in a process that has imported no Keras and has no choice in its environment."""
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    monkeypatch.delitem(sys.modules, "keras", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("document", "tensorflow", "chosen"),
    [
        (None, True, "jax"),
        (AUTOMATIC, True, "jax"),
        (AUTOMATIC | {"backend": "jax"}, True, "jax"),
        (AUTOMATIC | {"backend": "torch"}, False, None),
        ({"backend": "openvino"}, False, None),
        ({"backend": "tensorflow"}, True, None),
        ({"backend": "tensorflow"}, False, "jax"),
        (AUTOMATIC | {"floatx": "float16"}, True, None),
        ({"floatx": "float32"}, True, "jax"),
        ([], True, "jax"),
        ({"backend": 3}, True, "jax"),
    ],
)
def test_only_a_choice_of_the_user_keeps_jax_away(
    document: object, tensorflow: bool, chosen: str | None, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if document is not None:
        (home / "keras.json").write_text(json.dumps(document))
    if tensorflow:
        (home / "tensorflow").mkdir()
        (home / "tensorflow" / "__init__.py").touch()
        monkeypatch.syspath_prepend(home)
    choose_backend()
    assert os.environ.get("KERAS_BACKEND") == chosen


@pytest.mark.parametrize("backend", ["torch", ""])
def test_the_environment_comes_first(backend: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "keras.json").write_text(json.dumps({"backend": "numpy"}))
    monkeypatch.setenv("KERAS_BACKEND", backend)
    choose_backend()
    assert os.environ["KERAS_BACKEND"] == backend


def test_keras_writes_what_counts_as_no_choice(tmp_path: Path) -> None:
    """A contract with the installed Keras: its own file, written under any backend, leaves JAX."""
    run(tmp_path, "import keras", backend="numpy")
    assert json.loads((tmp_path / "keras.json").read_text()) == AUTOMATIC
    done = run(tmp_path, "import wdport, keras; print(keras.backend.backend())")
    assert (done.stdout.strip(), done.returncode) == ("jax", 0)


CALLS: dict[str, str] = {
    "load_model": "wdport.load_model('small.keras')",
    "verify": "wdport.verify('small.ckpt', 'small.keras')",
    "keras": "import keras; keras.saving.load_model('small.keras')",
    "after keras": "import keras; keras.layers.Dense(2); wdport.load_model('small.keras')",
}


IN_A_COMMAND = """
import os, sys
from wdport.cli import main

def instead():
    import keras
    loaded = {"matplotlib", "sklearn"} & set(sys.modules)
    import matplotlib, sklearn
    print(os.environ["KERAS_BACKEND"], loaded, "wdport.uses.unet2d.port" in sys.modules, callable(sklearn.clone))

main.main = instead
main.run()
"""
"""Keras is imported without the packages that take half of its import, and anybody can import these afterwards."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import wdport

    folder = tmp_path_factory.mktemp("backend")
    wdport.convert(save(folder / "small.ckpt", make_state()), values=dict(SETTINGS))
    (folder / "keras.json").write_text(json.dumps({"backend": "numpy"}))
    return folder


@pytest.mark.parametrize(
    "call", [pytest.param(each, marks=pytest.mark.full) if each in ("load_model", "keras") else each for each in CALLS]
)
def test_another_backend_is_one_clear_line(call: str, folder: Path) -> None:
    """The configuration names numpy's: what needs JAX says so, and what to do."""
    code = f"import wdport\ntry:\n    {CALLS[call]}\nexcept wdport.WdportError as error: print(error)"
    done = run(folder, code)
    told = "keras: it runs on the numpy backend; set KERAS_BACKEND=jax before keras is first imported\n"
    assert (done.stdout, done.stderr) == (told, "")


def test_commands_run_on_jax_whatever_the_configuration_names(folder: Path) -> None:
    """A command is a process of its own; only KERAS_BACKEND is about it."""
    code = "import sys; from wdport.cli.main import run; sys.argv = ['wdport', *{!r}]; run()"
    command = code.format(["convert", "small.ckpt", "-o", "again.keras", "--force", *SET])
    assert run(folder, command).returncode == 0
    assert run(folder, IN_A_COMMAND).stdout == "jax set() True True\n"
    done = run(folder, code.format(["verify", "small.ckpt", "small.keras"]), backend="tensorflow")
    assert done.returncode == 5
    assert done.stderr.startswith("error: keras: cannot be imported (")
    assert done.stderr.endswith("; unset KERAS_BACKEND, or set it to jax\n")
    assert done.stderr.count("\n") == 1
