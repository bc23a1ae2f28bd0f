"""Conversions of checkpoints as they are found: every layout right, every fault one line that helps."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import wdport
from tests.make import NO_CROSS, QK_NORM, SETTINGS, SMALL, make_state, save
from wdport.base.errors import InputError, MisfitError, WdportError
from wdport.conversion.load import open_converted
from wdport.files.model_files import read_variables

State = dict[str, Any]


def convert(path: Path, **options: Any) -> wdport.Conversion:
    return wdport.convert(path, path.with_suffix(".safetensors"), values=SETTINGS | options.pop("more", {}), **options)


def arrays(conversion: wdport.Conversion) -> dict[str, np.ndarray]:
    return dict(read_variables(conversion.output, open_converted(conversion.output).variables))


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    return arrays(convert(save(tmp_path_factory.mktemp("plain") / "a.ckpt", make_state())))


LAYOUTS: dict[str, Callable[[State], Any]] = {
    "bare": lambda s: s,
    "fabric": lambda s: {"model": s, "optimizer": {}, "epoch": 3},
    "torch.compile": lambda s: {f"_orig_mod.{k}": v for k, v in s.items()},
    "ddp": lambda s: {f"module.{k}": v for k, v in s.items()},
    "ddp of compiled": lambda s: {f"module._orig_mod.{k}": v for k, v in s.items()},
    "averaged": lambda s: {"n_averaged": torch.tensor(5), **{f"module.{k}": v for k, v in s.items()}},
    "float64": lambda s: {k: v.double() for k, v in s.items()},
    "transposed views": lambda s: {k: v.t().contiguous().t() if v.ndim == 2 else v for k, v in s.items()},
    "index buffers": lambda s: (
        s
        | {f"cross_level_attention.other_indices_{i}": torch.tensor([j for j in range(4) if j != i]) for i in range(4)}
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_give_the_same_model(tmp_path: Path, expected: dict[str, np.ndarray], layout: str) -> None:
    found = arrays(convert(save(tmp_path / "a.pt", LAYOUTS[layout](make_state()), lightning=False)))
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("config", [QK_NORM, NO_CROSS], ids=["qk norm", "no cross-level"])
def test_variants(tmp_path: Path, config: Any) -> None:
    conversion = convert(save(tmp_path / "a.ckpt", make_state(config)))
    assert conversion.config.qk_norm == config.qk_norm
    assert conversion.config.cross_level_attention == config.cross_level_attention
    assert arrays(conversion).keys() == open_converted(conversion.output).variables.keys()


def test_half_precision_tables_are_recomputed(tmp_path: Path, expected: dict[str, np.ndarray]) -> None:
    """bfloat16 throughout: weights are widened exactly, tables come from their formulas, and it is said."""
    state = {name: tensor.bfloat16() for name, tensor in make_state().items()}
    assert state["alpha_bar_all"][3] == 1.0
    conversion = convert(save(tmp_path / "a.ckpt", state))
    found = arrays(conversion)
    for name in ("beta", "alpha", "alpha_bar"):
        assert np.array_equal(found[f"noise_schedule/{name}"], expected[f"noise_schedule/{name}"])
    kernel = state["level_transformers.1.input_proj.weight"].float().numpy().T
    assert np.array_equal(found["level_1/input_proj/kernel"], kernel)
    said = [row["source"] for row in conversion.manifest["tensors"] if row["recomputed"]]
    assert said == ["beta_all", "alpha_all", "alpha_bar_all"]


PE = "level_transformers.1.pos_encoding.pe"
WEIGHT = "level_transformers.1.blocks.0.mlp.0.weight"
SQUARE = "cross_level_attention.level_projections.0.weight"
BIAS = "cross_level_attention.level_expanders.2.bias"


def without(*names: str) -> Callable[[State], State]:
    return lambda s: {k: v for k, v in s.items() if k not in names}


def changed(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[State], State]:
    return lambda s: s | {name: change(s[name])}


def broken(tensor: torch.Tensor, value: float) -> torch.Tensor:
    tensor = tensor.clone()
    tensor.view(-1)[-1] = value
    return tensor


FAULTS: dict[str, tuple[Callable[[State], State], type[WdportError], str]] = {
    "two missing": (without(WEIGHT, BIAS), MisfitError, "2 misfits"),
    "transposed": (changed(WEIGHT, lambda t: t.t().contiguous()), MisfitError, "transposed?"),
    "renamed": (lambda s: {(k.replace("level_expanders.2.bias", "expander2.bias")): v for k, v in s.items()},
                MisfitError, "is cross_level_attention.expander2.bias the same tensor renamed?"),
    "nan": (changed(BIAS, lambda t: broken(t, float("nan"))), InputError, "NaN or infinite"),
    "infinity": (changed(WEIGHT, lambda t: broken(t, float("inf"))), InputError, "NaN or infinite"),
    "wrong table": (changed(PE, lambda t: t.roll(1, 0)), MisfitError, f"{PE} is not position_table.1"),
    "unknown schedule": (changed("beta_all", lambda t: t * 1.5), MisfitError, "noise schedule"),
    "alpha_bar of another": (changed("alpha_bar_all", lambda t: t**2), MisfitError, "alpha_bar_all is not"),
    "float64 too fine": (lambda s: {k: v.double() for k, v in s.items()} | {WEIGHT: s[WEIGHT].double() + 1e-12},
                         MisfitError, "cast=True"),
    "integers": (changed(WEIGHT, lambda t: t.long()), MisfitError, "not floating point"),
    "mixed prefixes": (lambda s: {("module." if i % 2 else "") + k: v for i, (k, v) in enumerate(s.items())},
                       InputError, "prefix"),
    "not a tensor": (lambda s: s | {"note": "hello"}, InputError, "note"),
    "another model": (lambda s: {"fc.weight": torch.zeros(2, 2)}, MisfitError, "no mapping table fits"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_refused(tmp_path: Path, fault: str) -> None:
    change, kind, text = FAULTS[fault]
    path = save(tmp_path / "a.ckpt", change(make_state()))
    with pytest.raises(kind) as caught:
        convert(path)
    line = f"error: {caught.value}"
    assert text in line or any(text in detail for detail in caught.value.details)
    assert len(line) - len(str(path)) <= 240
    assert "\n" not in line
    assert {p.name for p in tmp_path.iterdir()} == {"a.ckpt"}


def test_allowances(tmp_path: Path) -> None:
    state = changed(BIAS, lambda t: broken(t, float("nan")))(make_state())
    assert np.isnan(
        arrays(convert(save(tmp_path / "a.ckpt", state), allow_nonfinite=True))["cross_level/expander_2/bias"][-1]
    )
    state = make_state() | {WEIGHT: make_state()[WEIGHT].double() + 1e-12}
    found = arrays(convert(save(tmp_path / "b.ckpt", state), cast=True))["level_1/block_0/mlp/hidden/kernel"]
    assert np.array_equal(found, state[WEIGHT].numpy().astype(np.float32).T)


def test_assumptions_are_recorded_and_strict_refuses_them(tmp_path: Path) -> None:
    path = save(tmp_path / "a.ckpt", make_state())
    conversion = wdport.convert(path)
    assert conversion.assumed["num_heads"] == 8
    assert conversion.manifest["config"]["num_heads"] == {"value": 8, "origin": "assumed"}
    assert conversion.manifest["config"]["embed_dim"]["origin"] == "shapes"
    with pytest.raises(MisfitError, match="num_heads=8"):
        wdport.convert(path, tmp_path / "b.keras", strict=True)


def test_head_count_against_q_norm(tmp_path: Path) -> None:
    with pytest.raises(MisfitError, match="num_heads is 4 in the flag but 2 in the file"):
        convert(save(tmp_path / "a.ckpt", make_state(QK_NORM)), more={"num_heads": "4"})


@pytest.mark.parametrize("setting", [
    {"noise_schedule": "cosine"}, {"wavelet": "db4"}, {"wavelet": "nosuch"}, {"prediction_target": "velocity"}
])  # fmt: skip
def test_bad_settings(tmp_path: Path, setting: dict[str, str]) -> None:
    with pytest.raises(MisfitError):
        convert(save(tmp_path / "a.ckpt", make_state()), more=setting)


def test_manifest(tmp_path: Path) -> None:
    path = save(tmp_path / "a.ckpt", make_state())
    conversion = convert(path)
    manifest = json.loads(conversion.manifest_path.read_text())
    assert manifest == conversion.manifest
    import hashlib

    assert manifest["source"]["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert manifest["output"]["sha256"] == hashlib.sha256(conversion.output.read_bytes()).hexdigest()
    found = arrays(conversion)
    targets = [target for row in manifest["tensors"] for target in row["targets"]]
    assert {target["path"] for target in targets} == set(found)
    for target in targets:
        assert target["sha256"] == hashlib.sha256(found[target["path"]].tobytes()).hexdigest()
    accounted = [row["source"] for row in manifest["tensors"]] + [row["source"] for row in manifest["checks"]]
    assert set(accounted) == set(make_state())


def test_own_mapping_table(tmp_path: Path) -> None:
    """A user's table with one name changed reads a checkpoint with that name changed."""
    own = Path("mappings/waveletdiff.yaml").read_text().replace("[waveletdiff-common]", "[common.yaml]")
    (tmp_path / "own.yaml").write_text(own)
    common = Path("mappings/waveletdiff-common.yaml").read_text()
    assert "torch: mlp.3," in common
    (tmp_path / "common.yaml").write_text(common.replace("torch: mlp.3,", "torch: mlp.down,"))
    state = {name.replace("mlp.3.", "mlp.down."): tensor for name, tensor in make_state().items()}
    path = save(tmp_path / "a.ckpt", state)
    with pytest.raises(MisfitError):
        convert(path)
    assert len(arrays(convert(path, mapping=tmp_path / "own.yaml"))) == len(
        open_converted(path.with_suffix(".safetensors")).variables
    )


def test_a_tied_tensor_must_be_equal(tmp_path: Path) -> None:
    own = Path("mappings/waveletdiff.yaml").read_text() + "\ntied:\n  - {torch: copy, same_as: alpha_all}\n"
    (tmp_path / "own.yaml").write_text(own)
    state = make_state()
    for name, tensor in (("same", state["alpha_all"]), ("other", state["beta_all"])):
        path = save(tmp_path / f"{name}.ckpt", state | {"copy": tensor.clone()})
        if name == "same":
            assert convert(path, mapping=tmp_path / "own.yaml").manifest["ties"] == {"copy": "alpha_all"}
        else:
            with pytest.raises(MisfitError, match="copy differs from alpha_all"):
                convert(path, mapping=tmp_path / "own.yaml")
            assert not list(tmp_path.glob("other.safetensors*"))


def test_settings_are_what_the_small_model_has(tmp_path: Path) -> None:
    assert convert(save(tmp_path / "a.ckpt", make_state())).config == SMALL
