"""The U-Net of digits, trained for less long: a classifier of the real digits reads the labels that were asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from wdport.cli.main import main

TRAIN = Path(__file__).parents[2] / "examples" / "digits" / "train.py"


@pytest.mark.full
def test_the_digits_are_those_that_were_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("diffusers", exc_type=ImportError)
    datasets, neighbors = pytest.importorskip("sklearn.datasets"), pytest.importorskip("sklearn.neighbors")
    monkeypatch.chdir(tmp_path)
    subprocess.run([sys.executable, str(TRAIN), "digits", "--steps", "1000"], check=True)
    assert main(["convert", "digits", "-o", "a.keras"]) == 0
    assert main(["verify", "digits", "a.keras"]) == 0
    words = ["--label", "0,1,2,3,4,5,6,7,8,9", "--sampler", "ddim", "--steps", "20"]
    assert main(["sample", "a.keras", "-n", "200", *words, "-o", "a.npz"]) == 0
    digits = datasets.load_digits()
    classifier = neighbors.KNeighborsClassifier(3).fit(digits.images.reshape(-1, 64) / 16.0, digits.target)
    read = classifier.predict(np.load("a.npz")["images"].reshape(-1, 64))
    share = float(np.mean(read == np.tile(np.arange(10), 20)))
    print(f"{share:.1%} are read as asked for")  # noqa: T201
    assert share > 0.8
