"""What `export` and the readers of exported files refuse."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wdport
from tests.make import SETTINGS, TINY, make_state, save
from wdport.errors import InputError, UsageError, WdportError
from wdport.exporting.artifact import FACTS, member_digests, read_facts, write_artifact
from wdport.exporting.verification import _require_facts
from wdport.files.model_target import Target
from wdport.files.outputs import writable


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = save(tmp_path_factory.mktemp("refused") / "small.ckpt", make_state(TINY))
    return wdport.load_model(wdport.convert(path, values=SETTINGS).output)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"what": "denoiser", "sizes": {"n": 3}}, "sizes: are for a network; leave them out, or export a network"),
        ({"what": "network", "inputs": ["x: b 3"]}, "inputs: a waveletdiff model has its own; leave them out"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], said: str, model: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        wdport.export(model, tmp_path / "a.stablehlo", **options)
    assert str(refused.value) == said
    assert list(tmp_path.iterdir()) == []


def test_files_that_are_no_artifacts(tmp_path: Path) -> None:
    path = tmp_path / "a.stablehlo"
    path.write_text("not an archive")
    with pytest.raises(InputError, match="is not a model that wdport exported"):
        read_facts(path)
    with pytest.raises(InputError, match="is damaged"):
        member_digests(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other", "1")
    with pytest.raises(InputError, match="is not a model that wdport exported"):
        read_facts(path)


def test_two_members_of_one_name(tmp_path: Path) -> None:
    path = tmp_path / "a.stablehlo"
    write_artifact(Target(writable(path), "stablehlo"), {"what": "network"}, {"call": b"program"}, [np.zeros(3)])
    with zipfile.ZipFile(path) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    twice = next(name for name, _ in members if name != FACTS)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members:
            archive.writestr(name, data)
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr(twice, b"another")
    with pytest.raises(InputError, match="has two members of one name"):
        member_digests(path)


SOUND: dict[str, Any] = {"what": "denoiser", "precision": "highest", "batch": None, "platforms": ["cpu"],
         "compute_dtype": "float32"}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"what": "nonsense"}, "its facts are not those that wdport writes"),
        ({"batch": 1 << 24}, "its facts are not those that wdport writes"),
        ({"platforms": None}, r"its facts are not those that wdport writes \('NoneType' object is not iterable\)"),
        ({"compute_dtype": "float8"}, "computes in float8, which is not compared"),
    ],
)
def test_facts_of_another_form(changes: dict[str, Any], said: str) -> None:
    _require_facts(Path("a.stablehlo"), SOUND)
    with pytest.raises(WdportError, match=said):
        _require_facts(Path("a.stablehlo"), {**SOUND, **changes})
