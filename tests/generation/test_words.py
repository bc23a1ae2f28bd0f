"""Texts in place of tokens, and the tokenizer on its way from the folder to the model."""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path

import keras
import numpy as np
import pytest

import wdport
from tests.families.masked_lm.make import save
from tests.generation.test_generate import FIELDS
from tests.generation.words import WORDS as VOCABULARY
from tests.generation.words import with_tokenizer
from wdport.errors import InputError, MachineError, UsageError
from wdport.files.manifest_seal import file_sha256

TEXT = "the cat [MASK] on [MASK] <mask> ."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_tokenizer(save(tmp_path_factory.mktemp("m") / "m", FIELDS))


@pytest.fixture(scope="module")
def file(folder: Path) -> Path:
    return Path(wdport.convert(folder).output)


def test_a_file_keeps_the_tokenizer(folder: Path, file: Path, tmp_path: Path) -> None:
    """Also when Keras reads the file and saves it again."""
    given = (folder / "tokenizer.json").read_text()
    conversion = wdport.convert(folder, tmp_path / "a.keras")
    assert conversion.manifest["output"]["kept"] == {"tokenizer.json": file_sha256(folder / "tokenizer.json")}
    assert wdport.load_model(file).tokenizer_json == given
    model = keras.saving.load_model(file)
    assert model.tokenizer_json == given
    model.save(tmp_path / "again.keras")
    assert wdport.load_model(tmp_path / "again.keras").tokenizer_json == given
    assert wdport.load_model(wdport.convert(folder, tmp_path / "b.safetensors").output).tokenizer_json == ""
    (tmp_path / "bare").mkdir()
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "bare" / name).write_bytes((folder / name).read_bytes())
    bare = wdport.convert(tmp_path / "bare")
    assert "kept" not in bare.manifest["output"]
    assert wdport.load_model(bare.output).tokenizer_json == ""


def test_another_tokenizer_in_the_file_is_damage(file: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(tmp_path / "a.keras", "w") as new:
        for info in old.infolist():
            data = old.read(info)
            new.writestr(info, data.replace(b"cat", b"cow") if info.filename.endswith("tokenizer.json") else data)
    with pytest.raises(InputError, match="is damaged"):
        wdport.load_model(tmp_path / "a.keras")


def test_texts_are_completed(file: Path, folder: Path) -> None:
    model = wdport.load_model(file)
    done = wdport.generate(model, [TEXT, "he ran"], length=2)
    numbers = [VOCABULARY.index(word) for word in ("the", "cat", "<mask>", "on", "<mask>", "<mask>", ".")]
    same = wdport.generate(model, [[0, *numbers], [0, VOCABULARY.index("he"), VOCABULARY.index("ran")]], length=2)
    assert all(np.array_equal(a, b) for a, b in zip(done.tokens, same.tokens, strict=True))
    assert done.texts[1].startswith("he ran")
    filled = wdport.generate(model, [TEXT], tokenizer=folder)
    kept = [0, VOCABULARY.index("the"), VOCABULARY.index("cat"), VOCABULARY.index("on"), VOCABULARY.index("."), 3]
    assert [filled.tokens[0][at] for at in (0, 1, 2, 4, 7, 8)] == kept


def test_what_is_refused_of_texts(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = wdport.load_model(file)
    bare = wdport.load_model(wdport.convert(save(tmp_path / "b", FIELDS)).output)
    with pytest.raises(UsageError, match="keeps no tokenizer"):
        wdport.generate(bare, [TEXT])
    with pytest.raises(UsageError, match="keeps no tokenizer"):
        _ = wdport.generate(bare, [[2]]).texts
    for name, data, said in (("a.json", b"{}", "is not a tokenizer"), ("b.json", b"\xff", "is not UTF-8"),
                             ("none.json", None, "no such file")):  # fmt: skip
        if data is not None:
            (tmp_path / name).write_bytes(data)
        with pytest.raises(InputError, match=said):
            wdport.generate(bare, [TEXT], tokenizer=tmp_path / name)
    wide = wdport.load_model(wdport.convert(save(tmp_path / "w", {**FIELDS, "vocab_size": 40})).output)
    with pytest.raises(InputError, match="has no token 31"):
        wdport.generate(wide, [TEXT], tokenizer=file.with_name("m"), mask=31)
    with pytest.raises(InputError, match="has the ordinary token 'cat' as 5, which is the mask token"):
        wdport.generate(wide, [TEXT], tokenizer=file.with_name("m"), mask=5)
    own = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "tokenizers" else own(name, *rest)
    )
    with pytest.raises(MachineError, match="install wdport"):
        wdport.generate(model, [TEXT])
    assert wdport.generate(model, [[5, 2]]).words is None
