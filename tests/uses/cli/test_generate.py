"""`wdport generate`: prompts, outputs, refusals, documents."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import numpy as np
import pytest

import wdport
from tests.command import Cli
from tests.uses.generation.test_generate import FIELDS, MASK
from tests.uses.generation.words import with_tokenizer
from tests.uses.masked_lm.make import save
from wdport.base.jax_settings import fast_compile
from wdport.cli.main import main
from wdport.uses.generation import api


@pytest.fixture(autouse=True)
def _compile_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "fast_run", fast_compile)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = with_tokenizer(save(tmp_path_factory.mktemp("m") / "lm", FIELDS))
    return Path(wdport.convert(folder).output)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_texts_are_printed(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["generate", str(model), "--text", "the cat [MASK] on", "--text", "she was", "--length", "3"]
    assert main(words) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown == wdport.generate(wdport.load_model(model), ["the cat [MASK] on", "she was"], length=3).texts
    assert main([*words, "-q"]) == 0
    assert capsys.readouterr().out.splitlines() == shown
    Path("a.txt").write_text("the cat [MASK] on\n\nshe was\n")
    assert main(["generate", str(model), "--text-file", "a.txt", "--length", "3", "-o", "b.txt"]) == 0
    assert Path("b.txt").read_text().splitlines() == shown
    assert "2 texts" in capsys.readouterr().out


@pytest.mark.parametrize("ending", ["json", "npy"])
def test_tokens_of_a_file(ending: str, model: Path, cli: Cli) -> None:
    rows = [[5, MASK, 7], [MASK, 8, 9]]
    Path("p.json").write_text(json.dumps(rows))
    np.save("p.npy", np.array(rows, np.int16))
    words = ["generate", str(model), "--prompt-ids", f"p.{ending}", "--gap", "2", "--steps", "1", "--forbid", "cat"]
    told = json.loads(cli(*words, "--forbid", "9", "-o", "o.npz", "--json").out)
    assert (told["kind"], told["network_calls"], told["generated"], told["forbid"]) == ("generated", 1, 4, [5, 9])
    held = np.load("o.npz")
    assert held["tokens"].shape == (2, 4)
    assert held["lengths"].tolist() == [4, 4]
    assert held["tokens"][:, [0, 2, 3]][0].tolist()[0] == 5
    assert told["texts"][0]["tokens"] == held["tokens"][0].tolist()
    assert (held["steps"] == 0).sum() == 4
    cli(*words, "-o", "o.json", "--json", "d.json")
    written, also = (json.loads(Path(name).read_text()) for name in ("o.json", "d.json"))
    assert written["texts"] == also["texts"]
    assert written["output"] is None
    assert also["output"]["name"] == "o.json"


def test_a_text_longer_than_those_of_training_has_a_note(model: Path, tmp_path: Path, cli: Cli) -> None:
    short = Path(wdport.convert(save(tmp_path / "lm", {**FIELDS, "max_position_embeddings": 4})).output)
    Path("p.json").write_text(json.dumps([[5, MASK, 7]]))
    for path, length, note in ((model, 3, ""), (short, 1, ""), (short, 3, "a text has 6 tokens, and the model was")):
        said = cli("generate", path, "--prompt-ids", "p.json", "--length", length).err
        assert note in said if note else said == ""


def test_animations(model: Path) -> None:
    words = ["generate", str(model), "--text", "the cat [MASK] on [MASK]", "--steps", "2", "--threshold", "1"]
    assert main([*words, "--animate", "a.txt"]) == 0
    pages = Path("a.txt").read_text().split("\f")
    assert [page.count("░") for page in pages] == [2, 1, 0]
    pytest.importorskip("matplotlib")
    image = pytest.importorskip("PIL.Image")
    assert main([*words, "--animate", "a.gif"]) == 0
    with image.open("a.gif") as opened:
        assert opened.n_frames >= 3


WRONG = [
    ("generate LM", 2, "give one of them"),
    ("generate LM --text a --prompt-ids p.json", 2, "--text and --prompt-ids are given"),
    ("generate LM --text the", 2, "have no mask token"),
    ("generate LM --text the --length 2 -o x.csv", 2, "end the name in .txt, .json, .npz"),
    ("generate LM --text the --length 2 --animate x.mp4", 2, "end the name in .gif, .txt"),
    ("generate LM --text the --length 2 --threshold 2", 2, "--threshold"),
    ("generate LM --text the --length 2 --top-p nan", 2, "--top-p"),
    ("generate LM --text the --length 2 --steps 0", 2, "--steps"),
    ("generate LM --text the --length 2 --end pig", 2, "no token 'pig'"),
    ("generate LM --text the --length 2 --mask 30", 2, "--mask"),
    ("generate LM --text the --length 2 --tokenizer p.json", 3, "is not a tokenizer"),
    ("generate LM --text the --length 2 -o p.json", 2, "exists already"),
    ("generate LM --prompt-ids none.json", 3, "no such file"),
    ("generate LM --prompt-ids bad.json", 3, "entry 1 has 'a', which is not a token"),
    ("generate LM --prompt-ids float.npy", 3, "float64"),
    ("generate LM --prompt-ids p.txt", 3, "is not a .json or .npy file"),
    ("generate LM --prompt-ids far.json --length 1", 2, "has the token 99"),
    ("generate LM --text-file empty.txt", 3, "has no text"),
    ("generate p.json --text the", 3, "p.json"),
    ("generate BARE --text the", 2, "give --tokenizer FILE"),
]


def test_what_is_refused(model: Path, tmp_path: Path, cli: Cli) -> None:
    bare = wdport.convert(model.with_name("lm"), tmp_path / "bare.safetensors").output
    Path("p.json").write_text("[[3]]")
    Path("bad.json").write_text('[[3], ["a"]]')
    Path("far.json").write_text("[[99]]")
    Path("empty.txt").write_text("\n\n")
    Path("p.txt").write_text("a\n")
    np.save("float.npy", np.zeros((2, 3)))
    files = {"LM": str(model), "BARE": str(bare)}
    before = sorted(tmp_path.iterdir())
    for words, code, said in WRONG:
        error = cli(*[files.get(word, word) for word in words.split()], code=code).err
        assert said in error, words
        assert error.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


def test_in_float64(model: Path, cli: Cli) -> None:
    words = ["generate", model, "--text", "the cat [MASK] on", "--length", "3", "--dtype", "float64", "--json"]
    try:
        told = json.loads(cli(*words).out)
    finally:
        jax.config.update("jax_enable_x64", False)  # the command switches it on for all of JAX
    assert told["dtype"] == "float64"
    made = wdport.generate(wdport.load_model(model), ["the cat [MASK] on"], length=3)
    assert [text["text"] for text in told["texts"]] == made.texts
