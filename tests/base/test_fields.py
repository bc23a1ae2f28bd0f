"""Declared fields: what each type accepts, the sentence of each refusal, and what is derived of the declaration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from jsonschema import Draft202012Validator
from msgspec import Meta

from wdport.base.errors import UsageError
from wdport.base.fields import (
    FINITE,
    NETWORK,
    UNUSED,
    Choices,
    Effect,
    FieldRefusal,
    Fields,
    Flag,
    Summary,
    fields_of,
    json_setting,
    marked,
    rests_on,
    summary,
    typed_setting,
)

OLD = Flag("older files have it")
Side = Annotated[int, Meta(ge=1, le=9)]


@dataclass(frozen=True)
class Small(Fields):
    """One field of every kind."""

    width: Annotated[Side, Meta(description="Width."), NETWORK, Summary("width", 1)]
    sides: Annotated[Side | tuple[Side, Side] | None, Meta(description="Sides."), UNUSED] = None
    rate: Annotated[float, Meta(ge=0, lt=1, description="Rate."), UNUSED, OLD] = 0.0
    factor: Annotated[float, Meta(gt=0, lt=FINITE, description="Factor."), NETWORK] = 1.0
    flag: Annotated[bool, Meta(description="Flag."), NETWORK, Summary("on")] = False
    kind: Annotated[Literal["a", "b", None], Meta(description="Kind."), Effect(gates=("E",))] = "a"
    act: Annotated[str, Choices(("x", "y"), ("z",), {"ex": "x", None: "y"}), Meta(description="Act."), NETWORK] = "x"
    widths: Annotated[tuple[Side, ...], Meta(min_length=1, max_length=3, description="Widths."), NETWORK] = (1,)
    names: Annotated[tuple[Literal["p", "q"], ...], Meta(description="Names."), NETWORK] = ()
    even: Annotated[
        int, Meta(ge=2, le=8, multiple_of=2, description="Even."), NETWORK, FieldRefusal("{value} is odd")
    ] = 2


REFUSED: list[tuple[str, Any, str]] = [
    ("width", True, "width is not a whole number"),
    ("width", 3.0, "width is not a whole number"),
    ("width", "3", "width is not a whole number"),
    ("width", None, "width is not a whole number"),
    ("width", float("nan"), "width is not a whole number"),
    ("width", 0, "width 0: from 1 to 9 is supported"),
    ("width", 10**99, "width of 329 bits: from 1 to 9 is supported"),
    ("sides", [1], "sides is not a whole number"),
    ("sides", [1, 2, 3], "sides is not a whole number"),
    ("sides", (1, 10), "sides 10: from 1 to 9 is supported"),
    ("sides", 10, "sides 10: from 1 to 9 is supported"),
    ("rate", 1, "rate 1 is not in [0, 1)"),
    ("rate", float("nan"), "rate nan is not in [0, 1)"),
    ("rate", 10**400, "rate of 1329 bits is not in [0, 1)"),
    ("rate", False, "rate is not a number"),
    ("factor", 0, "factor is not above zero"),
    ("factor", float("inf"), "factor is not a finite number"),
    ("flag", 1, "flag is not true or false"),
    ("kind", "c", "kind 'c' is not supported: use a, b, null"),
    ("kind", ["a"], "kind is not text"),
    ("act", "w", "act 'w' is not supported: use x, y"),
    ("widths", [], "widths has 0 values, from 1 to 3 are supported"),
    ("widths", [1] * 4, "widths has 4 values, from 1 to 3 are supported"),
    ("widths", [1, True], "widths is not a list of whole numbers"),
    ("widths", {1, 2}, "widths is not a list of whole numbers"),
    ("widths", [1, 10], "widths 10: from 1 to 9 is supported"),
    ("even", 3, "even 3 is odd"),
    ("even", 10, "even 10: from 2 to 8 is supported"),
]


@pytest.mark.parametrize(("name", "value", "message"), REFUSED, ids=range(len(REFUSED)))
def test_refusals(name: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        Small.from_dict({"width": 1, name: value})
    assert str(caught.value) == message


def test_a_list_with_a_number_that_python_does_not_write_out() -> None:
    with pytest.raises(ValueError, match="names has a list, which is not supported: use p, q"):
        Small(1, names=([10**5000],))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value", "read"),
    [("rate", 0, 0), ("factor", 3, 3), ("widths", [1, 2], (1, 2)), ("sides", [3, 4], (3, 4)), ("sides", 3, 3),
     ("act", "ex", "x"), ("act", None, "y"), ("act", "z", "z"), ("kind", None, None)],
)  # fmt: skip
def test_values_are_kept_as_they_are_written(name: str, value: Any, read: Any) -> None:
    found = getattr(Small.from_dict({"width": 1, name: value}), name)
    assert (type(found), found) == (type(read), read)


def test_unknown_and_missing_names() -> None:
    for values, message in (({"width": 1, "wide": 2}, "unknown field 'wide'"), ({}, "missing .*: width"),
                            ([], "not a table of values")):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            Small.from_dict(values)  # type: ignore[arg-type]
    assert Small.from_dict({"width": 1}).to_dict()["widths"] == [1]


def test_markers() -> None:
    assert rests_on(Small) == {"sides": (), "rate": (), "kind": ("E",)}
    assert list(summary(Small).items()) == [("flag", "on"), ("width", "width")]
    assert marked(Small, OLD) == ("rate",)


def test_settings() -> None:
    assert (json_setting(Small, "widths", "[1, 2]"), json_setting(Small, "kind", "None")) == ([1, 2], None)
    assert typed_setting(Small, "rate", "0", "a number") == 0.0
    with pytest.raises(UsageError, match="is not a field of this model"):
        json_setting(Small, "wide", "1")
    with pytest.raises(UsageError, match=r"'1.0' is not a number; give a number"):
        typed_setting(Small, "width", "1.0", "a number")


def test_the_schema_accepts_what_the_reader_accepts() -> None:
    schema = {"properties": {name: each.schema() for name, each in fields_of(Small).items()}}
    Draft202012Validator.check_schema(schema)
    valid = Draft202012Validator(schema).is_valid
    assert all(each["description"] for each in schema["properties"].values())
    assert valid({"sides": [3, 4], "act": "ex", "kind": None, "widths": [1, 2], "rate": 0, "even": 4})
    written = (int, float, str, bool, list, type(None))
    wrong = [(name, value) for name, value, _ in REFUSED if isinstance(value, written) and value == value]
    accepted = [(name, value) for name, value in wrong if valid({name: value})]
    assert accepted == [("width", 3.0)]  # JSON Schema does not tell 3.0 from 3
