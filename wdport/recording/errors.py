"""Reasons not to record, each in one line."""

from __future__ import annotations

import re

MODEL_ERRORS = (RuntimeError, TypeError, ValueError, LookupError, AttributeError, AssertionError, ArithmeticError)
"""What the code of a model raises for inputs that it does not take."""


class Refusal(Exception):
    """A reason not to record, in one line; ``exit_code`` is as in wdport: 2 usage, 3 file, 4 misfit, 5 machine,
    6 incomplete."""

    def __init__(self, exit_code: int, where: str, what: str, fix: str) -> None:
        super().__init__(f"{where}: {what}; {fix}")
        self.exit_code, self.where, self.what, self.fix = exit_code, where, what, fix


_STYLE = re.compile(r"\x1b\[\d+m")


MOST_LETTERS = 160
"""Letters of the text of an error of others."""


def one_line(error: object) -> str:
    kind = f"{type(error).__name__}: " if isinstance(error, BaseException) else ""
    # Keras prints parts of its messages bold.
    text = f"{kind}{' '.join(_STYLE.sub('', str(error)).split())}"
    words = text[: MOST_LETTERS - 4].rpartition(" ")[0]
    return f"{words} ..." if words and len(text) > MOST_LETTERS else text[:MOST_LETTERS]
