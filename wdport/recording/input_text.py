"""The text of inputs, as in ``--input 'x: b 3 48 48'``."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Mapping, Sequence

from .errors import Refusal
from .inputs import DISTRIBUTIONS, Input

_INPUT = re.compile(
    r"\s*([A-Za-z_][\w.]*\??)\s*(?:->\s*([A-Za-z_][\w.]*)\s*)?:"
    r"\s*([^,>]*?)\s*(?:->\s*([^,]*?)\s*)?(?:,\s*(\w+)((?:\s+[\w.+-]+)*)\s*)?"
)
_AXIS = re.compile(r"(?:([a-z]+)=)?([1-9]\d*(?:\.\.[1-9]\d*)?)|([a-z]+)")
_NAME = re.compile(r"[a-z]+")
_IDS = re.compile(r",\s*ids\s*<\s*")


def parse_input(text: str) -> Input:
    """Read one input by itself; raises ``ValueError`` with the reason."""
    return parse_inputs([text])[0]


def parse_inputs(texts: Sequence[str]) -> tuple[Input, ...]:
    """Read all inputs of a network, ``NAME [-> NAME]: AXES [-> AXES] [, DRAW]`` each, in which axes of one name have
    one size; raises ``ValueError`` with the reason."""
    matches, axes = [], []
    sizes: dict[str, str] = {}  # by name
    for text in texts:
        match = _INPUT.fullmatch(_IDS.sub(", below ", text))
        if match is None:
            raise ValueError(f"{text!r} is not NAME: AXES, such as {_with_numbers(text)!r}")
        stated = _parse_axes(match.group(3), text)
        for axis, size in stated:
            # Sizes without a name are those of their own input.
            if size and not axis.startswith("_") and sizes.setdefault(axis, size) != size:
                raise ValueError(f"{text!r}: {axis} is {size} here, and {sizes[axis]} before; use another name")
        matches.append(match)
        axes.append(stated)
    names = [match.group(1).rstrip("?") for match in matches]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"several inputs have the name {repeated[0]}; each needs its own")
    return tuple(_parsed(text, match, stated, sizes) for text, match, stated in zip(texts, matches, axes))


def _with_numbers(text: str) -> str:
    """An example of the notation, with the numbers of a shape such as ``3,32,32`` or ``(1, 3, 32, 32)``, if it is
    one."""
    numbers = re.findall(r"\d+", text)
    if not numbers or re.search(r"[^\s\d,x()\[\]]", text):
        return "x: b 3 48 48"
    batch = numbers[0] == "1" and len(numbers) > 1
    return " ".join(["x: b", *numbers[batch:]])


def _parse_axes(text: str, where: str) -> list[tuple[str, str]]:
    """The axes with the sizes that are stated here, "" for ``b`` and a name alone."""
    axes = []
    for index, word in enumerate(text.split()):
        match = _AXIS.fullmatch(word)
        if match is None or match.group(1) == "b":
            raise ValueError(
                f"{where!r}: {word!r} is not b, a size, NAME=SIZE or a NAME whose size is stated elsewhere"
            )
        named, size, name = match.groups()
        axes.append((named or name or f"_{chr(97 + index)}", size or ""))
    return axes


def _parsed(text: str, match: re.Match[str], axes: Sequence[tuple[str, str]], shared: Mapping[str, str]) -> Input:
    """One input with its sizes, those that other inputs state among them."""
    called, keras_name, _, right, draw, rest = match.groups()
    name, optional = called.rstrip("?"), called.endswith("?")
    words = rest.split() if rest else []
    limit = words[0] if draw == "below" and words and _NAME.fullmatch(words[0]) else ""
    names = tuple(axis for axis, _ in axes)
    ranges = {axis: size or shared.get(axis, "") for axis, size in [*axes, (limit, "")] if axis not in ("", "b")}
    if unknown := [axis for axis, size in ranges.items() if not size]:
        raise ValueError(f"{text!r}: no input states the size of {unknown[0]}, such as {unknown[0]}=8..64")
    ends = {axis: tuple(map(int, size.split(".."))) for axis, size in ranges.items()}
    sizes = {axis: numbers[0] for axis, numbers in ends.items()}
    by_itself = {axis: numbers[1] for axis, numbers in ends.items() if numbers[1:]}
    keras_axes = tuple(right.split()) if right else names
    if sorted(keras_axes) != sorted(names):
        raise ValueError(f"{text!r} does not name the same axes on both sides, such as 'x: b c=3 t=40 -> b t c'")
    parsed = Input(
        name, names, sizes, keras_axes, alone=by_itself, optional=optional, limit=limit, keras_name=keras_name or name
    )
    if draw is None:
        return parsed
    between, counts = {"from": "to", "below": "from"}.get(draw), DISTRIBUTIONS.get(draw, ())
    if (
        (counts and len(words) not in counts)
        or draw not in DISTRIBUTIONS
        or (between and words[1:2] not in ([], [between]))
    ):
        draws = "normal, below N, below N from M, from LOW to HIGH, steps N, parts N N, positive or mask"
        raise ValueError(f"{text!r}: {draw!r} is not {draws}")
    if limit:
        words[0] = str(min(ends.get(limit, (1,))))
    try:
        numbers = tuple(float(word) for word in words if word != between)
    except ValueError:
        raise ValueError(f"{text!r}: {' '.join(words)!r} is not a list of numbers") from None
    parsed = replace(parsed, draw=draw, numbers=numbers)
    if draw in ("below", "steps", "parts") and any(number < 1 or number % 1 for number in numbers):
        raise ValueError(f"{text!r}: {draw} takes positive integers")
    if draw == "below" and not parsed.integers:
        raise ValueError(f"{text!r}: there are no integers below {words[0]} from {words[2]}")
    if draw == "parts" and (len(names) < 2 or sum(numbers) != parsed.shape(1)[1]):
        raise ValueError(f"{text!r}: the parts do not add up to the axis after b")
    return parsed


def read_inputs(texts: Sequence[str]) -> tuple[Input, ...]:
    """:func:`parse_inputs` for a command line; raises :class:`Refusal`."""
    try:
        return parse_inputs(texts)
    except ValueError as error:
        raise Refusal(2, "--input", str(error), "see docs/inputs.md") from None
