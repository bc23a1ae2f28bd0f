"""Names of features: check those of data files and converted files before they are stored, and find columns by them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from os import PathLike

from wdport.errors import UsageError, printable
from wdport.limits import MAX_FEATURE_NAME_CHARS, MAX_FEATURE_NAMES_CHARS


def checked_names(names: object, features: int) -> tuple[str, ...]:
    """Return ``names`` as a tuple of ``features`` texts.

    Raises ``ValueError`` unless there is one name per feature, all are different, printable and without leading or
    trailing white space, and none is empty or too long.
    """
    if not isinstance(names, (list, tuple)):
        raise ValueError("names is not a list of texts")
    if len(names) != features:
        raise ValueError(f"{len(names)} names for {features} features")
    checked = tuple(_checked(number, name) for number, name in enumerate(names, 1))
    if sum(map(len, checked)) > MAX_FEATURE_NAMES_CHARS:
        raise ValueError(f"the names have more than {MAX_FEATURE_NAMES_CHARS} characters in total")
    name, count = Counter(checked).most_common(1)[0]
    if count > 1:
        raise ValueError(f"{count} features have the name '{printable(name)}'")
    return checked


def _checked(number: int, name: object) -> str:
    if not isinstance(name, str) or not name:
        raise ValueError(f"the name of feature {number} is {'empty' if name == '' else 'not text'}")
    if len(name) > MAX_FEATURE_NAME_CHARS:
        what = f"{len(name)} characters, at most {MAX_FEATURE_NAME_CHARS} are kept"
        raise ValueError(f"the name of feature {number} has {what}")
    if not name.isprintable() or name != name.strip():
        what = "leading or trailing white space" if name.isprintable() else "a character that cannot be printed"
        raise ValueError(f"the name of feature {number}, '{printable(name)}', has {what}")
    return name


def in_any_case(names: Sequence[str], candidates: Sequence[str]) -> list[str | None]:
    """For each of ``names`` the same name among ``candidates``, or the only one that differs in case; None if there is
    none."""
    matches: list[str | None] = []
    for name in names:
        alike = [candidate for candidate in candidates if candidate.casefold() == name.casefold()]
        matches.append(name if name in candidates else alike[0] if len(alike) == 1 else None)
    return matches


def columns_of(requested: Sequence[str], held: Sequence[str], where: str | PathLike[str]) -> list[str]:
    """The names among ``held`` of the columns ``requested``, in their order; raises :class:`UsageError` if one is not
    there."""
    columns = in_any_case(requested, held)
    if missing := [name for name, column in zip(requested, columns, strict=True) if column is None]:
        what = f"has no column of numbers called {_listed(missing[:1])}, and has {_listed(held)}"
        raise UsageError(where, what, f"give the columns {_listed(requested)}")
    return [column for column in columns if column is not None]


def _listed(names: Sequence[str]) -> str:
    text = ", ".join(printable(name, 40) for name in names[:8])
    return f"{text} and {len(names) - 8} more" if len(names) > 8 else text
