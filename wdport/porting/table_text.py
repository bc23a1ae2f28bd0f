"""Write a suggested table as text: rows that differ only in numbers folded, comments on what was proved, and every
doubt."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from wdport.base.shared_types import about
from wdport.mapping.names import NamePattern
from wdport.porting.candidate_rows import Fields, list_of

# A number in a name, but not one within an index such as <n+1>.
_NUMBER = re.compile(r"(?<![0-9])(\d+)(?![0-9])(?![^<]*>)")
_INDICES = ("n", "m", "i", "j", "k")


class Doubt(NamedTuple):
    """An unproved guess: the tensor or layer that it is about, and what is guessed."""

    name: str
    what: str


@dataclass(frozen=True)
class Place:
    """A layer in both models; either name may be empty."""

    keras: Annotated[str, about("Path of the Keras layer.")]
    torch: Annotated[str, about("Path of the PyTorch module.")]


@dataclass(frozen=True)
class TableSection:
    """Rows and their common prefixes, which are empty for single rows."""

    torch: str
    keras: str
    rows: tuple[Fields, ...]


def fold(
    rows: Sequence[Fields], modules: Collection[str], tensors: Collection[str], variables: Collection[str] = ()
) -> list[Fields]:
    """Fold rows into rows with indices in place of numbers, in the order of their first occurrence.

    A pattern that would match another of the PyTorch model's ``modules`` or ``tensors``, or of the Keras model's
    ``variables``, is not used.
    """
    # Rows of a kind name modules, those of `filled` variables, all others tensors.
    names = {"layers": modules, "filled": variables}
    clusters: dict[object, list[Fields]] = {}
    for row in rows:
        clusters.setdefault(_skeleton(row), []).append(row)
    # A folded row takes the place of the first that it represents.
    positioned: list[tuple[int, Fields]] = []
    for cluster in clusters.values():
        for folded_row, first in _folded(cluster, names.get(list_of(cluster[0]), tensors)):
            positioned.append((rows.index(first), folded_row))
    return [row for _, row in sorted(positioned, key=lambda pair: pair[0])]


def fold_doubts(doubts: Sequence[Doubt]) -> list[str]:
    """Join doubts that state the same about several names, in words."""
    groups: dict[tuple[str, str], list[Doubt]] = {}
    for doubt in doubts:
        groups.setdefault((_NUMBER.sub("#", doubt.name), _NUMBER.sub("#", doubt.what)), []).append(doubt)
    by_text: dict[str, list[str]] = {}
    for (name, what), *others in groups.values():
        by_text.setdefault(what, []).append(f"{name} ({1 + len(others)} alike)" if others else name)
    return [f"{', '.join(names)}: {what}" for what, names in by_text.items()]


def sections(rows: Sequence[Fields]) -> list[TableSection]:
    """Group three or more rows of layers with common prefixes that have an index; the others stay single."""
    grouped: list[TableSection] = []
    heads = [_head(row) for row in rows]
    for row, head in zip(rows, heads, strict=True):
        if head == ("", "") or heads.count(head) < 3:
            head, inner = ("", ""), row
        else:
            torch, keras = str(row["torch"])[len(head[0]) + 1 :], str(row["keras"])[len(head[1]) + 1 :]
            inner = {**row, "torch": torch, "keras": keras}
        earlier = [(section.torch, section.keras) for section in grouped]
        if head == ("", "") or head not in earlier:
            grouped.append(TableSection(*head, (inner,)))
        else:
            index = earlier.index(head)
            grouped[index] = TableSection(*head, (*grouped[index].rows, inner))
    return grouped


def _texts(row: Fields) -> list[str]:
    """All names of a row: PyTorch's, then Keras's, then those of ties."""
    texts: list[str] = []
    for field in ("torch", "keras", "same_as"):
        value = row.get(field, [])
        texts += [str(name) for name in value] if isinstance(value, list) else [str(value)]
    return texts


def _skeleton(row: Fields) -> object:
    rest = tuple((name, str(value)) for name, value in row.items() if name not in ("torch", "keras", "same_as"))
    return tuple(_NUMBER.sub("#", text) for text in _texts(row)), rest


def _numbers(row: Fields) -> list[list[int]]:
    return [[int(number) for number in _NUMBER.findall(text)] for text in _texts(row)]


def _folded(cluster: list[Fields], names: Collection[str]) -> Iterator[tuple[Fields, Fields]]:
    """Rows that represent these, each with the first one that it represents."""
    if len(cluster) == 1:
        yield cluster[0], cluster[0]
        return
    if (folded_row := _pattern(cluster)) is not None and _matches(folded_row, cluster, names):
        yield folded_row, cluster[0]
        return
    flat = [[number for text_numbers in _numbers(row) for number in text_numbers] for row in cluster]
    # No pattern for all: the rows are divided by the first number that has few values, such as the number of a stage.
    for slot in range(len(flat[0])):
        values = sorted({numbers[slot] for numbers in flat})
        if 1 < len(values) < len(cluster):
            for value in values:
                part = [row for row, numbers in zip(cluster, flat, strict=True) if numbers[slot] == value]
                yield from _folded(part, names)
            return
    for row in cluster:
        yield row, row


def _pattern(cluster: Sequence[Fields]) -> Fields | None:
    """One row with indices for all of these, or ``None``."""
    if any(number != str(int(number)) for row in cluster for text in _texts(row) for number in _NUMBER.findall(text)):
        return None  # 01, which no pattern writes
    every = [_numbers(row) for row in cluster]
    columns: dict[tuple[int, ...], str] = {}
    texts = []
    for place, text in enumerate(_texts(cluster[0])):
        words: list[str] = []
        for slot in range(len(every[0][place])):
            column = [numbers[place][slot] for numbers in every]
            if len(set(column)) == 1:
                words.append(str(column[0]))
                continue
            index = next(((name, column[0] - earlier[0]) for earlier, name in columns.items()
                          if len({a - b for a, b in zip(column, earlier, strict=True)}) == 1), None)  # fmt: skip
            if index is None:
                if place or len(columns) == len(_INDICES):
                    return None
                index = (_INDICES[len(columns)], 0)
                columns[tuple(column)] = index[0]
            name, offset = index
            words.append(f"<{name}{f'{offset:+d}' if offset else ''}>")
        replacements = iter(words)
        texts.append(_NUMBER.sub(lambda _: next(replacements), text))  # noqa: B023
    indices = {frozenset(NamePattern(text).indices) - {"layer"} for text in texts}
    if len(indices) != 1 or any(len(set(NamePattern(t).indices)) != len(NamePattern(t).indices) for t in texts):
        return None
    return _with_names(cluster[0], texts)


def _with_names(row: Fields, texts: Sequence[str]) -> Fields:
    left = iter(texts)
    renamed: dict[str, object] = {}
    for field, value in row.items():
        if field in ("torch", "keras", "same_as"):
            renamed[field] = [next(left) for _ in value] if isinstance(value, list) else next(left)
        else:
            renamed[field] = value
    return renamed


def _matches(row: Fields, cluster: Sequence[Fields], names: Collection[str]) -> bool:
    """Whether the row's patterns match exactly the names in the rows that it represents."""
    first = row.get("torch", row.get("keras"))
    for place, text in enumerate(first if isinstance(first, list) else [first]):
        represented = {_texts(member)[place] for member in cluster}
        if {name for name in names if NamePattern(str(text)).match(name) is not None} - represented:
            return False
    return True


def _head(row: Fields) -> tuple[str, str]:
    """Both names up to and including their last index."""
    torch, keras = row.get("torch"), row.get("keras")
    if not isinstance(torch, str) or not isinstance(keras, str) or "kind" not in row:
        return "", ""
    head = _indexed(torch, "."), _indexed(keras, "/")
    return head if all(head) else ("", "")


def _indexed(text: str, joint: str) -> str:
    parts = text.split(joint)
    places = [index for index, part in enumerate(parts[:-1]) if "<" in part and "<layer" not in part]
    return joint.join(parts[: places[-1] + 1]) if places else ""


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./<>+-]*")
_QUOTED = frozenset({"rule", "flatten", "axes", "drop"})
# Plain words that YAML 1.1 reads as another type.
_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n", "~"})


def table_text(
    parts: Sequence[TableSection], torch: str, keras: str, inputs: Sequence[str], config: Sequence[str] = (),
    head: Sequence[str] = (), doubts: Sequence[str] = (), outputs: Sequence[str] = (),
) -> str:  # fmt: skip
    """The table as YAML; ``head`` and ``doubts`` become comments."""
    lines = [f"# {line}" for line in head]
    lines += [f"# doubt: {line}" for line in doubts]
    lines += ["format: 2", *([f"torch: {_scalar(torch)}"] if torch else []), f"keras: {_scalar(keras)}"]
    if inputs:
        lines.append(f"inputs: [{', '.join(_quoted(text) for text in inputs)}]")
    if outputs:
        lines.append(f"outputs: [{', '.join(_quoted(text) for text in outputs)}]")
    if config:
        lines.append(f"config: [{', '.join(map(_scalar, config))}]")
    rows = [row for part in parts if not part.torch for row in part.rows]
    for name, chosen in _grouped(rows).items():
        lines += [f"{name}:", *(f"  - {row_text(row)}" for row in chosen)]
    with_prefix = [part for part in parts if part.torch]
    if with_prefix:
        lines.append("sections:")
    for part in with_prefix:
        lines += [f"  - torch: {_scalar(part.torch)}", f"    keras: {_scalar(part.keras)}"]
        for name, chosen in _grouped(part.rows).items():
            lines += [f"    {name}:", *(f"      - {row_text(row)}" for row in chosen)]
    return "\n".join(lines) + "\n"


def _grouped(rows: Sequence[Fields]) -> dict[str, list[Fields]]:
    """The rows by the list of the table that contains them."""
    by_list: dict[str, list[Fields]] = {"layers": [], "tensors": [], "tied": [], "filled": []}
    for row in rows:
        by_list[list_of(row)].append(row)
    return {name: chosen for name, chosen in by_list.items() if chosen}


def row_text(row: Fields) -> str:
    return "{" + ", ".join(f"{name}: {_value(name, value)}" for name, value in row.items()) + "}"


def _value(name: str, value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_value('', element)}" for key, element in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_scalar(str(element)) for element in value) + "]"
    if isinstance(value, (int, bool)):
        return str(value).lower()
    return _quoted(str(value)) if name in _QUOTED and " " in str(value) else _scalar(str(value))


def _scalar(text: str) -> str:
    plain = _PLAIN.fullmatch(text) or re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", text)
    return text if plain and text.lower() not in _WORDS else _quoted(text)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
