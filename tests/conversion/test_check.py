"""`map check` says of a table and a checkpoint what a conversion would say."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import wdport
from tests.families.test_custom import TABLES, files
from tests.make import NO_CROSS, QK_NORM, SETTINGS, SMALL, make_state, save
from wdport.base.errors import MisfitError, UsageError, WdportError
from wdport.conversion.check import check_table
from wdport.conversion.prepare import Settings
from wdport.conversion.table_documents import compare_files
from wdport.mapping.table import mappings_folder

SHIPPED = sorted(mappings_folder().glob("*.yaml"))
GOLDENS = ["etth1-seq24-db2.ckpt", "exchange-seq24-qknorm.ckpt", "stocks-seq64-db4.pt", "ts2vec-stocks.pt"]


def agrees(table: Path, checkpoint: Path, output: Path, settings: Settings) -> bool:
    """Whether the conversion goes through; it and the check must say the same."""
    found = check_table(table, checkpoint, settings)
    try:
        wdport.convert(checkpoint, output, mapping=table, values=dict(settings.values or {}), model=settings.model)
    except MisfitError as refusal:
        told = refusal.details or (f"{refusal.where}: {refusal.what}; {refusal.fix}",)
        assert found.misfits == told
        return False
    assert not found.faults, found.faults
    assert found.planned is not None
    return True


@pytest.mark.parametrize("name", GOLDENS)
def test_it_agrees_with_convert_on_recordings(golden: Path, tmp_path: Path, name: str) -> None:
    named = [each for each in SHIPPED if each.stem != "waveletdiff-common" and "\nfamily: " in each.read_text()]
    went = [agrees(table, golden / name, tmp_path / f"{table.stem}.safetensors", Settings()) for table in named]
    assert sum(went) == 1


@pytest.mark.parametrize("name", ["small", "qk_norm", "no_cross", "half", "short", "more"])
def test_it_agrees_with_convert_on_small_models(tmp_path: Path, name: str) -> None:
    state = make_state({"qk_norm": QK_NORM, "no_cross": NO_CROSS}.get(name, SMALL))
    if name == "half":
        state = {each: tensor.bfloat16() for each, tensor in state.items()}
    if name == "short":
        del state["time_embedding.mlp.0.weight"]
    if name == "more":
        state["more"] = torch.zeros(3)
    checkpoint = save(tmp_path / "ck.pt", state)
    settings = Settings(values=SETTINGS)
    tables = [each for each in SHIPPED if each.stem in ("waveletdiff", "waveletdiff-qknorm")]
    went = {each.stem for each in tables if agrees(each, checkpoint, tmp_path / f"{each.stem}.safetensors", settings)}
    wanted = {"qk_norm": {"waveletdiff-qknorm"}, "short": set(), "more": set()}
    assert went == wanted.get(name, {"waveletdiff"})


@pytest.mark.parametrize("name", TABLES)
def test_it_agrees_with_convert_on_models_of_the_users_own(tmp_path: Path, name: str) -> None:
    checkpoint, table = files(tmp_path, name)
    model = f"tests.families.toys.twins:{name}"
    assert agrees(table, checkpoint, tmp_path / "out.safetensors", Settings(model=model))
    without = check_table(table, checkpoint)
    assert (without.faults, without.planned, without.warnings) == ((), None, ())
    assert without.notes == (f"the Keras model's variables were not checked; use --keras-model {model}",)
    bad = tmp_path / "bad.yaml"
    text = table.read_text()
    bad.write_text(text.replace("torch: ", "torch: no_").replace("torch: no_tests", "torch: tests", 1))
    assert not agrees(bad, checkpoint, tmp_path / "bad.safetensors", Settings(model=model))
    assert check_table(bad, checkpoint).faults


def test_claims_are_told_by_row(tmp_path: Path) -> None:
    checkpoint, table = files(tmp_path, "shared")
    found = check_table(table, checkpoint)
    assert found.coverage is not None
    claims = {each.torch: (each.line, each.tensors) for each in found.coverage.rows}
    assert claims["offset"] == (9, ("offset",))
    assert claims["again.weight"] == (11, ("again.weight",))
    assert claims["mix.weight_g, mix.weight_v"] == (7, ())


def test_what_the_table_alone_tells(tmp_path: Path) -> None:
    for each in SHIPPED:
        found = check_table(each)
        assert (found.faults, found.warnings, found.coverage) == ((), (), None), each
    unknown = tmp_path / "t.yaml"
    unknown.write_text("format: 2\nfamily: x\ntensors: [{torch: a, keras: b, rule: identity}]\n")
    assert check_table(unknown).faults[0].startswith("family: unknown model family 'x'")
    torch.save({"a": torch.zeros(2)}, tmp_path / "a.pt")
    assert check_table(unknown, tmp_path / "a.pt").faults[0].startswith("family: unknown model family 'x'")
    own = next(each for each in SHIPPED if each.stem == "waveletdiff")
    with pytest.raises(UsageError, match="name a checkpoint after the table"):
        check_table(own, None, Settings(model="a:b"))
    with pytest.raises(WdportError, match="has its own"):
        check_table(own, tmp_path / "a.pt", Settings(model="a:b"))


def test_comparison_of_files(tmp_path: Path) -> None:
    checkpoint, table = files(tmp_path, "gru")
    outputs = [wdport.convert(checkpoint, tmp_path / f"out{each}", mapping=table).output
               for each in (".keras", ".safetensors", ".weights.h5")]  # fmt: skip
    for one in outputs:
        assert all(compare_files(one, other).same for other in outputs)
    assert compare_files(checkpoint, checkpoint).same
    assert compare_files(table, table).same
    other = save(tmp_path / "other.ckpt", {f"model.{name}": each for name, each in
                                           torch.load(checkpoint).items()})  # fmt: skip
    found = compare_files(checkpoint, other)
    assert found.prefix or found.facts
    assert {**found.only_a, **found.only_b, **found.changed} == {}
    with pytest.raises(UsageError, match=r"is a converted file, and ck\.pt a checkpoint; give two files of one kind"):
        compare_files(checkpoint, outputs[0])
