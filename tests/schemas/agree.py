"""Documents that are nearly sound, and whether a schema and a reader say the same of each."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from hypothesis import strategies as st
from jsonschema import Draft202012Validator

Path = tuple[str | int, ...]

POOL: tuple[Any, ...] = (
    None, True, False, 0, 1, 2, -1, 2.5, 10**400, "", " ", "x", "a b", " a", "a ", "a*", "a?", "a.<i>",
    "<i>.<i>", "a.<i>1<j>", "a.<I>", "linear", "identity", "out in -> in out", "out ->", "shift", "true", "auto", "inf",
    "2027-01-31", [], ["a"], ["a", "b"], ["a", 1], [None], [[]], {}, {"a": 1}, {"a": "b"}, {"": ""},
)  # fmt: skip
"""What a value may become."""


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """The path of every value in a document, its own first."""
    yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inside:
        yield from places(each, (*path, key))


def at(document: Any, path: Path) -> Any:
    for key in path:
        document = document[key]
    return document


@st.composite
def mutated(draw: st.DrawFn, seeds: Sequence[Any], words: Sequence[str]) -> Any:
    """One of the seeds after one to three small changes; ``words`` are names that fields may get."""
    document = copy.deepcopy(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from([each for each in places(document) if each] or [()]))
        if not path:
            return document
        parent, key = at(document, path[:-1]), path[-1]
        match draw(st.sampled_from(("replace", "splice", "remove", "rename", "add", "wrap", "twice"))):
            case "replace":
                parent[key] = copy.deepcopy(draw(st.sampled_from(POOL)))
            case "splice":
                donor = draw(st.sampled_from(seeds))
                parent[key] = copy.deepcopy(at(donor, draw(st.sampled_from(list(places(donor))))))
            case "remove":
                del parent[key]
            case "rename" if isinstance(parent, dict):
                parent[draw(st.sampled_from(words))] = parent.pop(key)
            case "add" if isinstance(parent, dict):
                parent[draw(st.sampled_from(words))] = copy.deepcopy(draw(st.sampled_from(POOL)))
            case "wrap":
                parent[key] = [parent[key]]
            case "twice" if isinstance(parent, list):
                parent.append(copy.deepcopy(parent[key]))
    return document


def disagreement(
    document: Any,
    schema: Mapping[str, Any],
    read: Callable[[Any], object],
    semantic: Sequence[str] = (),
    lenient: Sequence[str] = (),
) -> str:
    """How a schema and a reader differ about a document; "" where they do not.

    Args:
        read: raises an error where the reader refuses the document.
        semantic: parts of the reader's messages about what no schema can state.
        lenient: parts of the schema's messages about what the reader lets pass.
    """
    faults = [error.message for error in Draft202012Validator(schema).iter_errors(document)]
    try:
        read(document)
    except Exception as error:
        refused = str(error)
        if faults or any(each in refused for each in semantic):
            return ""
        return f"the reader refuses what the schema accepts: {refused}"
    if not faults or all(any(each in fault for each in lenient) for fault in faults):
        return ""
    return f"the schema refuses what the reader accepts: {faults[0]}"
