"""The published files: made of the code as it is, sound themselves, with a page, and fit for what is shipped."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from tests.schemas.__main__ import written
from tests.schemas.compared import ROOT, dates_as_text
from tests.schemas.formats import DOCUMENTS, formats
from tests.schemas.held import hold, validator
from wdport.files import json_document
from wdport.files.json_document import SCHEMAS
from wdport.parity.policy.baseline import RULES
from wdport.parity.policy.policy import TapRecord
from wdport.uses.custom_sampled import DiffusionForm, NoiseLevelsForm, SamplingForm
from wdport.uses.diffusion.noise_levels import NoiseLevels
from wdport.uses.diffusion.scheduler_config import Scheduler

DOCS = ROOT / "docs"
NAMES = [each.name for each in formats()]


def test_files_are_what_the_code_makes() -> None:
    """Run `make schemas` if this fails."""
    made = dict(written(DOCS))
    stale = [path.name for path, text in made.items() if path.read_text(encoding="utf-8") != text]
    assert stale == [], "run `make schemas`"
    assert sorted((DOCS / "schemas").iterdir()) == sorted(path for path in made if path.suffix == ".json")


@pytest.mark.parametrize("name", NAMES)
def test_schema_is_sound_and_says_what_everything_means(name: str) -> None:
    schema = next(each for each in formats() if each.name == name).schema("https://example.org/")
    Draft202012Validator.check_schema(schema)
    assert schema["$id"].endswith(f"/schemas/{name}.schema.json")
    assert schema["$schema"] == Draft202012Validator.META_SCHEMA["$id"]
    for example in schema.get("examples", []):
        Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER).validate(example)
    for part in (schema, *schema.get("$defs", {}).values()):
        told = [each for each in part["properties"].values() if isinstance(each, dict)]
        assert all(each.get("description") or "properties" in each or "anyOf" in each for each in told)


def test_every_kind_of_document_has_a_schema() -> None:
    assert set(SCHEMAS) == set(DOCUMENTS)
    assert {kind: validator(kind).schema["properties"]["schema"]["const"] for kind in SCHEMAS} == SCHEMAS


def test_what_people_write_is_closed_and_what_wdport_writes_is_open() -> None:
    closed = {"mapping-table", "policy", "baseline"}
    for each in formats():
        assert each.closed == (each.name in closed), each.name
        if each.closed:
            assert each.schema("")["additionalProperties"] is False


@pytest.mark.parametrize("file", sorted((ROOT / "mappings").glob("*.yaml")), ids=lambda file: file.name)
def test_shipped_tables(file: Path) -> None:
    hold("mapping-table", yaml.safe_load(file.read_text(encoding="utf-8")))
    first = file.read_text(encoding="utf-8").splitlines()[1]
    published = validator("mapping-table").schema["$id"].rpartition("/")[2]
    assert re.fullmatch(rf"# yaml-language-server: \$schema=https://\S+/{published}", first)


def test_tables_of_the_examples_and_the_tests() -> None:
    found = [*(ROOT / "examples").rglob("*.yaml"), *(ROOT / "tests" / "real").glob("*.yaml")]
    tables = [each for each in map(_yaml, found) if isinstance(each, dict) and each.get("format") == 2]
    assert len(tables) >= 3
    for each in tables:
        hold("mapping-table", each)


def test_the_projects_own_policy() -> None:
    hold("policy", dates_as_text(tomllib.loads((ROOT / "parity.toml").read_text(encoding="utf-8"))))


WRITTEN_BY_PEOPLE = ["baseline", "configuration-ts2vec", "configuration-unet2d", "configuration-waveletdiff",
                     "configuration-masked_lm", "configuration-wan_vae", "mapping-table", "policy",
                     "statistics"]  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN_BY_PEOPLE)
def test_examples_of_the_pages(name: str) -> None:
    """Every page of a format that people write has an example, and each is a whole document."""
    text = (DOCS / "formats" / f"{name}.md").read_text(encoding="utf-8")
    examples = re.findall(r"```(yaml|json|toml)\n(.*?)```", text, re.DOTALL)
    assert examples
    for language, example in examples:
        read = {"yaml": yaml.safe_load, "json": json.loads, "toml": lambda each: dates_as_text(tomllib.loads(each))}
        hold(name, read[language](example))


def test_schemas_and_readers_name_the_same_fields() -> None:
    """Where a reader has lists of its own, beside the declared types."""
    own = {*SamplingForm.__annotations__, "process", "time", "clip_sample", "clip_sample_range"}
    assert set(DiffusionForm.__annotations__) - own == {each.name for each in fields(Scheduler)} - {"clip"}
    levels = {field.name for field in fields(NoiseLevels)} - {"kind"}
    assert set(NoiseLevelsForm.__annotations__) - set(SamplingForm.__annotations__) - {"process", "scheduler"} == levels
    assert set(TapRecord.__annotations__) == set(RULES)


def test_what_is_written_is_held_to_its_schema() -> None:
    """The check that `held` puts around what other tests write can fail."""
    with pytest.raises(AssertionError, match="'table' is a required property"):
        json_document.document("check", {})


def _yaml(file: Path) -> Any:
    return yaml.safe_load(file.read_text(encoding="utf-8"))
