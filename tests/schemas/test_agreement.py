"""What a schema accepts its reader reads, and what it refuses the reader refuses: by thousands of small mistakes."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.schemas.agree import disagreement, mutated
from tests.schemas.compared import COMPARED, Compared
from tests.schemas.formats import formats
from tests.schemas.held import validator
from tests.schemas.json_schema import Schema

SITE = "https://example.org/"


@cache
def schema_of(name: str) -> Schema:
    return next(each for each in formats() if each.name == name).schema(SITE)


def seeds(name: str) -> list[Any]:
    return [*COMPARED[name].seeds, *schema_of(name).get("examples", [])]


def words(value: Any) -> list[str]:
    """The names of all fields that a schema has."""
    if isinstance(value, dict):
        own = list(value.get("properties", {})) if isinstance(value.get("properties"), dict) else []
        return list(dict.fromkeys([*own, *(name for each in value.values() for name in words(each)), "note"]))
    return [name for each in value for name in words(each)] if isinstance(value, list) else []


def differ(name: str, document: Any, folder: Path) -> str:
    told: Compared = COMPARED[name]
    read = lambda each: told.read(each, folder)  # noqa: E731
    return disagreement(document, schema_of(name), read, list(told.semantic), list(told.lenient))


@pytest.mark.parametrize("name", COMPARED)
def test_seeds_are_sound(name: str, tmp_path: Path) -> None:
    for document in seeds(name):
        assert disagreement(document, schema_of(name), lambda each: COMPARED[name].read(each, tmp_path)) == ""
        COMPARED[name].read(document, tmp_path)


@pytest.mark.parametrize("name", COMPARED)
def test_every_exception_is_one(name: str, tmp_path: Path) -> None:
    """What a schema cannot state it accepts and the reader refuses; what a reader lets pass the schema refuses."""
    told = COMPARED[name]
    for message, document in told.semantic.items():
        assert not list(validator(name).iter_errors(document)), message
        with pytest.raises(Exception, match=re.escape(message)):
            told.read(document, tmp_path)
    for message, document in told.lenient.items():
        assert message in " ".join(error.message for error in validator(name).iter_errors(document))
        told.read(document, tmp_path)


@pytest.mark.parametrize("name", COMPARED)
def test_schema_and_reader_agree(name: str, tmp_path: Path) -> None:
    @settings(max_examples=60, database=None, suppress_health_check=list(HealthCheck),
              phases=[Phase.generate], derandomize=True)  # fmt: skip
    @given(mutated(seeds(name), words(schema_of(name))))
    def agree(document: Any) -> None:
        assert differ(name, document, tmp_path) == ""

    agree()
