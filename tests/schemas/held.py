"""Whatever a test makes wdport write is held to its published schema, and every field in it has to be declared."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache, wraps
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from wdport.conversion import convert as river
from wdport.files import json_document
from wdport.parity.policy import judge as gated
from wdport.recording.recording_writer import RecordingWriter


@cache
def validator(name: str, closed: bool = True) -> Draft202012Validator:
    """Of a format; closed, since what wdport writes has no fields that its schema lacks."""
    from tests.schemas.formats import formats

    published = next(each for each in formats() if each.name == name)
    return Draft202012Validator(published.schema("https://example.org/", closed))


def hold(name: str, document: object, closed: bool = True) -> None:
    """Raise ``AssertionError`` where a document does not fit its schema."""
    error = best_match(validator(name, closed).iter_errors(document))
    assert error is None, f"{name} {error.json_path}: {error.message[:500]}"


def _before(function: Callable[..., Any], name: str, at: int) -> Callable[..., Any]:
    """``function``, whose argument ``at`` is a document."""

    @wraps(function)
    def held(*given: Any) -> Any:
        document = dict(given[at])
        if "cases" in document:  # the first has every kind of entry; all of them take a second
            document["cases"] = document["cases"][:1]
        hold(name, json.loads(json.dumps(document)))
        return function(*given)

    return held


@pytest.fixture(autouse=True, scope="session")
def _held_to_schemas() -> Iterator[None]:
    made = json_document.document

    def document(kind: str, content: object) -> dict[str, object]:
        found = made(kind, content)
        hold(kind, found)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_document, "document", document)
        patch.setattr(river, "render_manifest", _before(river.render_manifest, "manifest", 0))
        patch.setattr(gated, "write_baseline", _before(gated.write_baseline, "baseline", 1))
        patch.setattr(RecordingWriter, "close", _before(RecordingWriter.close, "recording-index", 1))
        yield
