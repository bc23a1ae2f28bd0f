"""The reference that the demonstration trains: it opens, converts, and its configuration agrees."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import pywt.data
import torch

from wdport.checkpoint import open_checkpoint
from wdport.conversion.river import convert

SCRIPT = Path(__file__).parents[2] / "examples" / "train_reference.py"
STEPS = 12


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = spec_from_file_location("train_reference", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """As the script runs on the command line."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def stem(script: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("reference") / "new"
    script.main([str(folder), "--steps", str(STEPS), "--seconds", "600"])
    return str(folder / script.NAME)


def test_checkpoint_opens(script: ModuleType, stem: str) -> None:
    saved = torch.load(f"{stem}.ckpt", weights_only=True)
    assert saved["global_step"] == saved["lr_schedulers"][0]["last_epoch"] == STEPS
    assert saved["optimizer_states"][0]["state"][0]["step"] == STEPS
    with open_checkpoint(f"{stem}.ckpt") as checkpoint:
        assert set(checkpoint.tensors) == set(saved["state_dict"])
    assert len(saved["optimizer_states"][0]["state"]) == len(list(script.WaveletDiff(script.CONFIG).parameters()))


def test_converts_without_assumptions(script: ModuleType, stem: str, tmp_path: Path) -> None:
    conversion = convert(f"{stem}.ckpt", tmp_path / "model.keras", config=f"{stem}.config.yaml")
    assert conversion.assumed == {}
    assert conversion.output.exists()
    given = {"wavelet": "db2", "boundary_mode": "symmetric", "seq_len": 24}
    assert conversion.config.to_dict() == {**script.CONFIG.to_dict(), **given}


def test_normalisation_gives_back_the_series(script: ModuleType, stem: str) -> None:
    norm = json.loads(Path(f"{stem}.norm.json").read_text(encoding="utf-8"))
    series = script.load_series()
    scaled = (series - norm["mean"]) / norm["std"]
    coefficients = script.to_coefficients(scaled).numpy()
    assert coefficients.shape == (1000, 31, 2)
    for row, feature in ((0, 0), (999, 1)):
        expected = np.concatenate(pywt.wavedec(scaled[row : row + 24, feature], "db2", "symmetric", 3))
        np.testing.assert_allclose(coefficients[row, :, feature], expected, atol=2e-6)
    np.testing.assert_allclose(series[:, 0], pywt.data.ecg()[1:])
    np.testing.assert_allclose(series[0, 0] - series[0, 1], pywt.data.ecg()[0])


def test_more_steps_fit_better(script: ModuleType, stem: str) -> None:
    """On the same noise; the twelve steps against none at all."""
    trained = script.WaveletDiff(script.CONFIG).eval()
    trained.load_state_dict(torch.load(f"{stem}.ckpt", weights_only=True)["state_dict"])
    torch.manual_seed(script.SEED)
    untrained = script.WaveletDiff(script.CONFIG).eval()
    series = script.load_series()
    x0 = script.to_coefficients((series - series.mean(axis=0)) / series.std(axis=0))[::10]
    losses = []
    for model in (untrained, trained):
        torch.manual_seed(1)
        with torch.no_grad():
            losses.append(script.coefficient_loss(model, x0).item())
    assert losses[1] < losses[0]


def test_same_seed_same_weights(script: ModuleType) -> None:
    x0 = script.to_coefficients(script.load_series() / 50.0)
    first, again = (script.train(x0, 2, 600.0)["state_dict"] for _ in range(2))
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_time_bound_ends_training(script: ModuleType) -> None:
    x0 = script.to_coefficients(script.load_series() / 50.0)
    assert script.train(x0, 5, 0.0)["global_step"] == 0


def test_steps_below_one_are_refused(script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        script.main([str(tmp_path), "--steps", "0"])
    assert "--steps is at least 1" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
