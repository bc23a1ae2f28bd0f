"""The port against the reference at many sizes, missing steps, files, configurations, and the command line."""

from __future__ import annotations

import re
from pathlib import Path

import jax
import keras
import numpy as np
import pytest
import torch

import wdport
from tests.command import Cli, Refused
from tests.uses.ts2vec.make import SMALL, random_tensors, save
from wdport.base.errors import MisfitError, UsageError, WdportError
from wdport.mapping.plan import Plan, make_plan
from wdport.mapping.table import shipped_tables
from wdport.models.keras_runtime import set_variable
from wdport.uses.ts2vec.config import Config
from wdport.uses.ts2vec.family import FAMILY

(TABLE,) = (table for table in shipped_tables() if table.family == "ts2vec")


def both(config: Config, series: np.ndarray, seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    """Representation and embedding in float64, of the port and of the reference."""
    tensors = random_tensors(config, seed)
    plan = make_plan(TABLE, {name: each.shape for name, each in tensors.items()}, FAMILY.variables(config), {})
    assert isinstance(plan, Plan)
    with jax.enable_x64(True):
        model = FAMILY.build(config, "float64")
        variables = {variable.path: variable for variable in model.weights}
        for move in plan.moves:
            for path, array in zip(move.targets, move.apply([tensors[name] for name in move.sources]), strict=True):
                set_variable(variables.pop(path), array)
        assert not variables
        ours = run(model, series)
    with torch.no_grad():
        theirs = FAMILY.build_reference(config, tensors, "float64")(torch.from_numpy(series.copy()))
    return list(zip(ours, (each.numpy() for each in theirs), strict=True))


def run(model: keras.Model, series: np.ndarray) -> list[np.ndarray]:
    """Both outputs; compiled as one program, which is sooner than a program for each step."""
    return [np.asarray(each) for each in jax.jit(lambda x: model(x))(series)]


def draw(config: Config, steps: int, seed: int = 0, batch: int = 2) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((batch, steps, config.input_dims))


SIZES = [
    (Config(1, 3, 2, 0), 5),
    (Config(2, 4, 4, 1), 1),  # as many channels behind the last block as before it: it projects none the less
    (Config(3, 5, 7, 2, 5), 17),
    (Config(2, 4, 6, 3, 1), 6),
]


@pytest.mark.parametrize(("config", "steps"), SIZES)
def test_any_sizes_and_any_length(config: Config, steps: int) -> None:
    for ours, theirs in both(config, draw(config, steps), seed=steps):
        assert ours.dtype == np.float64
        assert np.allclose(ours, theirs, rtol=0, atol=1e-12)


def test_the_battery_reaches_the_widest_dilation() -> None:
    for config, _ in SIZES:
        (series,) = FAMILY.signature(config).inputs
        assert series.shape(1)[1] > config.kernel_size // 2 * 2**config.depth
        assert series.shape(4) == (4, 24, config.input_dims)


def test_a_step_with_nan_is_missing_as_a_whole() -> None:
    """It enters the first block as zeros: neither its other features are seen nor the bias of the projection."""
    series = draw(SMALL, 12)
    series[0, 3, 1] = series[1, 5:8] = np.nan
    (ours, theirs), (embedded, right) = both(SMALL, series)
    assert np.isfinite(ours).all()
    assert np.allclose(ours, theirs, rtol=0, atol=1e-12)
    assert np.allclose(embedded, right, rtol=0, atol=1e-12)
    hidden = series.copy()
    hidden[0, 3, 0] = 1e6
    assert np.array_equal(both(SMALL, hidden)[0][0], ours)
    zeros = np.where(np.isnan(series).any(axis=-1, keepdims=True), 0.0, series)
    assert not np.allclose(both(SMALL, zeros)[0][0], ours, atol=1e-3)  # zeros that are given have the bias


def test_the_variables_are_the_models() -> None:
    for config, _ in SIZES:
        model = FAMILY.build(config)
        assert FAMILY.variables(config) == {each.path: tuple(each.shape) for each in model.weights}
        given = (2, 9, config.input_dims)
        made = jax.eval_shape(lambda x, model=model: model(x), jax.ShapeDtypeStruct(given, "float32"))
        assert model.compute_output_shape(given) == tuple(each.shape for each in made)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("ts2vec") / "small.pt")


@pytest.mark.parametrize("suffix", [".keras", ".safetensors", ".weights.h5"])
def test_every_format(checkpoint: Path, tmp_path: Path, suffix: str) -> None:
    output = wdport.convert(checkpoint, tmp_path / f"a{suffix}").output
    model = wdport.load_model(output)
    series = draw(SMALL, 9).astype(np.float32)
    expected = both(SMALL, series.astype(np.float64))
    for ours, (_, theirs) in zip(run(model, series), expected, strict=True):
        assert np.allclose(ours, theirs, rtol=0, atol=1e-5)
    if suffix == ".keras":
        again = keras.saving.load_model(output)
    elif suffix == ".weights.h5":
        again = FAMILY.build(SMALL)
        again.load_weights(output)
    else:
        return
    assert np.array_equal(run(again, series)[0], run(model, series)[0])


def test_the_command_line(checkpoint: Path, tmp_path: Path, cli: Cli) -> None:
    output = tmp_path / "out.keras"
    shown = cli("convert", checkpoint, "-o", output).out
    assert "n_averaged (counter of an averaged model)" in shown
    assert "hidden_dims 4 (shapes), output_dims 6 (shapes), depth 2 (shapes)" in shown
    shown = cli("verify", checkpoint, output, "--full", "--json", tmp_path / "v.json").out
    assert shown.startswith("PASS")
    gates = ["preflight", "float64", "float32", "bfloat16", "gradients", "training mode"]
    assert re.findall(r"^ok   (?!settings)(\S.*?)  ", shown, re.MULTILINE) == gates
    assert re.search(r"^outputs +representation \S+, embedding \S+ \(float64", shown, re.MULTILINE)
    text = (tmp_path / "v.json").read_text()
    assert '"output.representation"' in text
    assert '"output.embedding"' in text
    assert "ts2vec, public" in cli("inspect", output).out


def test_it_does_not_sample(checkpoint: Path, tmp_path: Path, refused: Refused) -> None:
    output = wdport.convert(checkpoint, tmp_path / "out.keras").output
    for words in (("sample",), ("export", "--what", "denoiser"), ("export", "--what", "sampler")):
        refused(*words, output, says="a ts2vec model draws no samples")


WORDS = re.compile(r"ts2vec|feature_extractor|repr_dropout|input_fc|(input|hidden|output|repr)_dims", re.IGNORECASE)


def test_no_other_room_knows_the_family() -> None:
    package = Path(wdport.__file__).parent
    found = {path.relative_to(package).as_posix() for path in package.rglob("*.py") if WORDS.search(path.read_text())}
    home = {name for name in found if name.startswith("uses/ts2vec/")}
    assert found - home == {"families/shipped.py", "base/former_names.py"}
    assert len(home) >= 5


@pytest.mark.parametrize("config", [SMALL, Config(1, 1, 1, 0, 1), Config(7, 3, 9, 4, 5)])
def test_shapes_tell_every_size(config: Config) -> None:
    shapes = {name: array.shape for name, array in random_tensors(config, 0).items()}
    assert FAMILY.sizes(shapes) == config.to_dict()
    assert Config.from_dict(config.to_dict()) == config


def test_one_wrong_tensor_is_reported_by_the_plan(tmp_path: Path) -> None:
    state = torch.load(save(tmp_path / "a.pt"))
    state["module.input_fc.bias"] = torch.zeros(9)
    torch.save(state, tmp_path / "a.pt")
    with pytest.raises(MisfitError, match=r"input_fc\.bias has shape \(9,\)"):
        wdport.convert(tmp_path / "a.pt")


BROKEN = {
    "no projector": (lambda s: {n: t for n, t in s.items() if "projector" not in n}, "missing .*projector"),
    "no input": (lambda s: {n: t for n, t in s.items() if "input_fc" not in n}, "input_dims cannot be determined"),
    "a gap": (lambda s: {n: t for n, t in s.items() if ".net.1." not in n}, "unexpected|misfits"),
    "a stranger": (lambda s: {**s, "module.sfd.weight": torch.zeros(2)}, r"unexpected sfd\.weight"),
    "even kernel": (lambda s: {n: t[..., :2] if t.ndim == 3 else t for n, t in s.items()}, "kernel_size 2 is even"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_whole_encoder_is_refused(checkpoint: Path, tmp_path: Path, name: str) -> None:
    change, message = BROKEN[name]
    torch.save(change(torch.load(checkpoint)), tmp_path / "a.pt")
    with pytest.raises(MisfitError, match=message):
        wdport.convert(tmp_path / "a.pt")
    assert [path.name for path in tmp_path.iterdir()] == ["a.pt"]


def test_what_is_given_has_to_agree(checkpoint: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("repr_dims: 6\nbatch_size: 8\n")
    values = {"depth": "2", "hidden_dims": "4"}
    assert wdport.convert(checkpoint, tmp_path / "a.keras", config=config, values=values).output.exists()
    with pytest.raises(UsageError, match="not a whole number"):
        wdport.convert(checkpoint, tmp_path / "b.keras", values={"depth": "many"})
    with pytest.raises(MisfitError, match="depth is 10 in the flag but 2 in the file"):
        wdport.convert(checkpoint, tmp_path / "b.keras", values={"depth": "10"})
    for text, message in (("repr_dims: 320", "output_dims is 320 in the config but 6 in the file"),
                          ("repr_dims: six", "not a whole number"), ("lr: 1", "no setting of")):  # fmt: skip
        config.write_text(text)
        with pytest.raises(MisfitError, match=message):
            wdport.convert(checkpoint, tmp_path / "b.keras", config=config)


def test_statistics_are_not_kept(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "stats.json").write_text('{"mean": [0, 0], "std": [1, 1]}')
    with pytest.raises(WdportError, match="a ts2vec encoder keeps none"):
        wdport.convert(checkpoint, tmp_path / "b.keras", norm_stats=tmp_path / "stats.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_dims": 60000, "output_dims": 60000, "depth": 14}, "values, at most"),
        ({"wavelet": "db2"}, "unknown configuration values: wavelet"),
    ],
)
def test_impossible_configurations(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Config.from_dict({**SMALL.to_dict(), **change})
    with pytest.raises(ValueError, match="missing configuration values: input_dims"):
        Config.from_dict({"hidden_dims": 1, "output_dims": 1, "depth": 1})
