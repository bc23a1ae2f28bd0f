"""The shipped tables: sound, alike where they describe the same layers, and chosen by their signature."""

from __future__ import annotations

from pathlib import Path

import pytest

from wdport.base.errors import MisfitError
from wdport.families.registry import shipped
from wdport.mapping.table import choose_table, load_table, shipped_tables

FOLDER = Path(__file__).resolve().parents[2] / "mappings"
OFFICIAL = "level_transformers.0.blocks.0.attn.in_proj_weight"
QK_NORM = "level_transformers.3.blocks.2.attn.q_norm.scale"


def test_every_file_of_the_folder_is_shipped() -> None:
    files = sorted(FOLDER.iterdir())
    tables = [load_table(file) for file in files]
    chosen = [(f"mappings/{f.name}", t.sha256) for f, t in zip(files, tables, strict=True) if t.signature]
    assert [(table.path, table.sha256) for table in shipped_tables()] == chosen
    # Tables for users to include in theirs: those of docs/keras-hub.md, each of a pair that `make hub` proves.
    page, pairs = (FOLDER.parent / "docs" / "keras-hub.md").read_text(), FOLDER.parent / "parity_tests" / "hub"
    proved = "".join((pairs / f"{name}.py").read_text() for name in ("text", "images"))
    offered = {file.name for file in files if file.name.startswith(("hub-", "applications-"))}
    assert not [
        name for name in offered if f"`{Path(name).stem}`" not in page or f'table="{Path(name).stem}"' not in proved
    ]
    assert {name for table in tables for name in table.includes} == {
        file.name for file, table in zip(files, tables, strict=True) if not table.signature
    } - offered
    assert {t.variant for t in shipped_tables() if t.family == "waveletdiff"} == {"official", "qk_norm"}
    assert {t.family for t in shipped_tables()} == {family.name for family in shipped()}


def test_they_are_short() -> None:
    assert sum(len(file.read_text().splitlines()) for file in FOLDER.glob("waveletdiff*.yaml")) <= 150


def test_a_change_of_what_is_included_changes_the_hash(tmp_path: Path) -> None:
    text = (FOLDER / "waveletdiff.yaml").read_text().replace("[waveletdiff-common]", "[common.yaml]")
    common = (FOLDER / "waveletdiff-common.yaml").read_text()
    (tmp_path / "own.yaml").write_text(text)
    hashes = set()
    for more in ("", "# a comment\n"):
        (tmp_path / "common.yaml").write_text(common + more)
        hashes.add(load_table(tmp_path / "own.yaml").sha256)
    assert len(hashes) == 2


def test_no_table_or_two_are_refused() -> None:
    with pytest.raises(MisfitError, match="several layouts") as caught:
        choose_table([OFFICIAL, QK_NORM], "x.ckpt")
    assert "waveletdiff.yaml" in str(caught.value)
    assert "waveletdiff-qknorm.yaml" in str(caught.value)
    with pytest.raises(MisfitError, match="no mapping table fits its 2 tensors; make one for your own model"):
        choose_table(["conv.weight", "conv.bias"], "x.ckpt")
    with pytest.raises(MisfitError, match="with 2 of 3 names"):
        choose_table(["beta_all", "alpha_all", "conv.bias"], "x.ckpt")
    with pytest.raises(MisfitError, match="its 0 tensors"):
        choose_table([], "x.ckpt")
