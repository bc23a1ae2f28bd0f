"""The language model of the demonstration: its text, and that a short training is enough to beat the commonest word."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import wdport
from tests.command import Cli

TRAIN = Path(__file__).parents[2] / "examples" / "text" / "train.py"
STEPS = 500


@pytest.fixture(scope="module")
def train() -> ModuleType:
    pytest.importorskip("transformers", exc_type=ImportError)
    spec = spec_from_file_location("train_text", TRAIN)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_text_is_prose_that_comes_with_python(train: ModuleType) -> None:
    texts = train.paragraphs()
    assert len(texts) > 60
    assert sum(map(len, texts)) > 12_000
    assert any("with" in text and "statement" in text for text in texts)
    tokenizer = train.train_tokenizer(texts[:50])
    assert tokenizer.decode(tokenizer.encode(texts[0]).ids) == texts[0]
    assert tokenizer.token_to_id("[MASK]") == train.MASK


@pytest.mark.full
def test_gaps_are_filled_with_more_sense_than_the_commonest_token(
    train: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.chdir(tmp_path)
    subprocess.run([sys.executable, str(TRAIN), "lm", "--steps", str(STEPS)], check=True)
    cli("convert", "lm", "-o", "a.keras")
    cli("verify", "lm", "a.keras")
    told = json.loads(
        cli("generate", "a.keras", "--text", "The with statement[MASK] a block.", "--gap", "4", "--json").out
    )["texts"][0]
    assert told["text"].startswith("The with statement")
    assert told["text"].endswith(" a block.")
    model = wdport.load_model("a.keras")
    words = train.Tokenizer.from_str(model.tokenizer_json)
    stream = np.array([token for text in train.paragraphs() for token in words.encode(text).ids])
    starts = np.random.default_rng(0).integers(0, len(stream) - 32, 400)
    rows = stream[starts[:, None] + np.arange(32)]
    hidden = np.isin(np.arange(32), (9, 10, 20))
    done = wdport.generate(model, list(np.where(hidden, train.MASK, rows)))
    right = float(np.mean([text[hidden] == row[hidden] for text, row in zip(done.tokens, rows, strict=True)]))
    commonest = Counter(stream.tolist()).most_common(1)[0][1] / len(stream)
    print(f"{right:.1%} of the hidden tokens, {commonest:.1%} by the commonest one")  # noqa: T201
    assert right > 2 * commonest
