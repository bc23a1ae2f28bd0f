"""The shipped tables: sound, alike where they describe the same layers, and chosen by their signature."""

from __future__ import annotations

from pathlib import Path

import pytest

from wdport.errors import MisfitError
from wdport.mapping.shipped import choose_table, shipped_tables
from wdport.mapping.table import load_table

FOLDER = Path(__file__).resolve().parents[2] / "mappings"
OFFICIAL = "level_transformers.0.blocks.0.attn.in_proj_weight"
QK_NORM = "level_transformers.3.blocks.2.attn.q_norm.scale"


def test_every_file_of_the_folder_is_shipped() -> None:
    assert [table.path for table in shipped_tables()] == [f"mappings/{f.name}" for f in sorted(FOLDER.iterdir())]
    assert {t.variant for t in shipped_tables()} == {"official", "qk_norm"}
    assert {t.family for t in shipped_tables()} == {"waveletdiff"}
    assert [t.sha256 for t in shipped_tables()] == [load_table(f).sha256 for f in sorted(FOLDER.iterdir())]


@pytest.mark.parametrize("table", shipped_tables(), ids=lambda table: table.path)
def test_no_two_rows_of_a_table_collide(table: object) -> None:
    rows = table.rows  # type: ignore[attr-defined]
    for names in ([p.text for row in rows for p in row.torch], [k.text for row in rows for k in row.keras]):
        assert len(set(names)) == len(names)
    assert any(p.text == table.signature.text for row in rows for p in row.torch)  # type: ignore[attr-defined]


def test_both_tables_say_the_same_of_the_names_they_share() -> None:
    said = [
        {r.torch[0].text: ([k.text for k in r.keras], r.rules, r.check, r.drop, r.when, r.optional) for r in table.rows}
        for table in shipped_tables()
    ]
    shared = said[0].keys() & said[1].keys()
    assert len(shared) == 39
    assert all(said[0][name] == said[1][name] for name in shared)


@pytest.mark.parametrize(("name", "variant"), [(OFFICIAL, "official"), (QK_NORM, "qk_norm")])
def test_the_signature_chooses(name: str, variant: str) -> None:
    assert choose_table(iter(["beta_all", name, "other"]), "x.ckpt").variant == variant


def test_no_table_or_two_are_refused() -> None:
    with pytest.raises(MisfitError, match="several layouts") as caught:
        choose_table([OFFICIAL, QK_NORM], "x.ckpt")
    assert "waveletdiff.yaml" in str(caught.value)
    assert "waveletdiff-qknorm.yaml" in str(caught.value)
    with pytest.raises(MisfitError, match="no mapping table fits its 2 tensors; give"):
        choose_table(["conv.weight", "conv.bias"], "x.ckpt")
    with pytest.raises(MisfitError, match="with 2 of 3 names"):
        choose_table(["beta_all", "alpha_all", "conv.bias"], "x.ckpt")
    with pytest.raises(MisfitError, match="its 0 tensors"):
        choose_table([], "x.ckpt")
