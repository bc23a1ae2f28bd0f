"""One run of ``wdport map suggest`` with all that it answers, and the score of the table that it suggests."""

from __future__ import annotations

import io
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from wdport.base.errors import WdportError
from wdport.cli.main import main
from wdport.mapping.moves import Move
from wdport.mapping.plan import _Draft
from wdport.mapping.table import Table, load_table
from wdport.models.interface import Array

from .corpus import PAIRS, Pair
from .names import How
from .running import BOUND, Sides


@dataclass(frozen=True)
class Answer:
    """What the command said.

    Attributes:
        code: its exit code.
        table: the file that it wrote, if any.
        doubts: comment lines of the table that begin with ``doubt:``, and the list of the JSON answer.
        first_unlike: the first layer that does not agree, as the JSON has it; ``None`` where all do.
        causes: sentences about the hyper-parameter.
        seconds: wall time of the whole command, its proof included.
        document: the whole JSON answer.
    """

    code: int
    table: Path | None
    doubts: tuple[str, ...] = ()
    first_unlike: Mapping[str, Any] | None = None
    causes: tuple[str, ...] = ()
    seconds: float = 0.0
    document: Mapping[str, Any] = field(default_factory=dict)


Suggest = Callable[[Pair, How, Path], Answer]
"""Asks about a pair, with this naming, for a table of this name."""


def ask(pair: Pair, names: How, output: Path) -> Answer:
    """The command line, in this process."""
    return run_command(pair.reference(names), pair.model, pair.inputs, output)


def run_command(reference: str, model: str, inputs: Sequence[str], output: Path) -> Answer:
    """``wdport map suggest`` with these functions."""
    words = ["map", "suggest", "--reference", reference, "--keras-model", model, "--json", "-o", str(output)]
    words += [word for text in inputs for word in ("--input", text)]
    printed, told = io.StringIO(), io.StringIO()
    shown = sys.stderr
    start = time.perf_counter()
    try:
        with redirect_stdout(printed), redirect_stderr(told):
            code = main(words)
    finally:
        sys.stderr = shown
    return _read_answer(code, output, printed.getvalue(), time.perf_counter() - start)


def _read_answer(code: int, output: Path, printed: str, seconds: float) -> Answer:
    """The exit code, the table with its comments, and the JSON on standard output."""
    at = printed.find("{")
    try:
        document = json.loads(printed[at:]) if at >= 0 else {}
    except json.JSONDecodeError:
        document = {}
    table = output if output.is_file() else None
    comments = re.findall(r"#\s*doubt:\s*(.*)", table.read_text(encoding="utf-8")) if table else []
    doubts = [*map(_text, document.get("doubts") or ()), *comments]
    unlike = document.get("first_unlike")
    causes = tuple(map(_text, document.get("causes") or ()))
    return Answer(code, table, tuple(doubts), unlike, causes, seconds, document)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


STOPPED = 4
"""Exit code of a command that could not prove a table and says so."""


@dataclass(frozen=True)
class Score:
    """How good a table is.

    Attributes:
        pair: whose it is.
        names: how the PyTorch model was named.
        code: the exit code of the command.
        tensors: how many there are, training counters left out.
        right: those of which the table says what the truth does.
        by_function: those of which it says something else, while the models compute the same.
        doubt: of the rest, those that a doubt names or that the table leaves out while it says that it stopped.
        wrong: the names of all others.
        doubts: how many doubts it states.
        error: relative error of the models with the table's weights; infinite where the table is incomplete.
        matching: the share of tensors that names-and-shapes matching places.
        answer: what the command said.
    """

    pair: str
    names: How
    code: int
    tensors: int
    right: int
    by_function: int
    doubt: int
    wrong: tuple[str, ...]
    doubts: int
    error: float
    matching: float
    answer: Answer
    note: str = ""

    @property
    def sound(self) -> bool:
        """None wrong without a doubt, and a table that is called proved computes the same."""
        return not self.wrong and (self.code == STOPPED or (self.code == 0 and self.error <= BOUND))


@lru_cache(maxsize=4)
def sides_of(pair: str) -> Sides:
    """The pair's models with honest names."""
    return Sides(PAIRS[pair])


def score(pair: Pair | str, names: How = "honest", suggest: Suggest = ask) -> Score:
    """Ask about a pair, and hold the answer to the truth and to the two models."""
    pair = PAIRS[pair] if isinstance(pair, str) else pair
    with TemporaryDirectory(prefix="suggest-") as folder:
        answer = suggest(pair, names, Path(folder, "suggested.yaml"))
        return _judge(pair, names, answer, sides_of(pair.name))


def _judge(pair: Pair, names: How, answer: Answer, sides: Sides) -> Score:
    """The score of an answer whose table still exists."""
    honest = pair.honest(names)
    given = {old: new for new, old in honest.items()}
    shapes = {name: tuple(array.shape) for name, array in sides.state.items()}
    plan = pair.plan(sides.variables)
    truth = Fates(plan.moves, plan.ties)
    found, note = _read(answer, {given[name]: shape for name, shape in shapes.items()}, sides, honest)
    same = compared(truth, found, sides.state)
    error, failed = _error(found, sides.state, sides)
    left = [name for name, right in same.items() if not right]
    equal = error <= BOUND
    rest = [] if equal else left
    stopped = answer.code != 0
    doubt = [
        name
        for name in rest
        if doubted(answer.doubts, name, given[name], truth.fills(name)) or (stopped and not found.fills(name))
    ]
    return Score(
        pair.name, names, answer.code, len(same), len(same) - len(left), len(left) if equal else 0, len(doubt),
        tuple(name for name in rest if name not in doubt), len(answer.doubts), error,
        matched_right(truth, shapes, sides.variables, given), answer, note or failed,
    )  # fmt: skip


def _read(answer: Answer, shapes: Shapes, sides: Sides, honest: Mapping[str, str]) -> tuple[Fates, str]:
    """What the table says, nothing where there is none; and what is the matter with it."""
    if answer.table is None:
        return Fates((), {}), "no table"
    try:
        return fates_of(load_table(answer.table), shapes, sides.variables, honest), ""
    except WdportError as error:
        return Fates((), {}), str(error)


def _error(found: Fates, state: Mapping[str, Array], sides: Sides) -> tuple[float, str]:
    counted = {name: array for name, array in state.items() if not name.endswith(UNCOUNTED)}
    try:
        return sides.error(found.apply(counted)), ""
    except Exception as error:  # the table's own affair, and no reason to end the bench
        return float("inf"), f"{type(error).__name__}: {error}"[:120]


_SAME = {"kernel": "weight", "gamma": "weight", "beta": "bias", "moving": "running", "variance": "var",
         "embeddings": "weight", "alpha": "weight", "recurrent": "hh"}  # fmt: skip
Shapes = Mapping[str, tuple[int, ...]]


def matched_right(truth: Fates, sources: Shapes, targets: Shapes, given: Mapping[str, str]) -> float:
    """The share of tensors that fill a variable in truth and are assigned to one of those.

    Args:
        truth: what becomes of them, by honest names.
        sources: their shapes, by honest names.
        targets: those of the variables.
        given: the name that each has in the model, by its honest name.
    """
    names = [name for name in sources if not name.endswith(UNCOUNTED)]
    paths = list(targets)
    cost = np.full((len(names), len(paths)), 1e3)
    for row, name in enumerate(names):
        for column, path in enumerate(paths):
            if _sizes(sources[name]) == _sizes(targets[path]):
                cost[row, column] = -_alike(given[name], path)
    places = zip(*linear_sum_assignment(cost), strict=True)
    assigned = {names[row]: paths[column] for row, column in places if cost[row, column] < 1e3}
    asked = [name for name in names if truth.fills(name)]
    return sum(assigned.get(name) in truth.fills(name) for name in asked) / len(asked)


def _sizes(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(size for size in shape if size != 1))


def _alike(name: str, path: str) -> float:
    ours, theirs = (" ".join(_SAME.get(word, word) for word in re.split(r"[./_]", each)) for each in (name, path))
    return SequenceMatcher(None, ours, theirs, autojunk=False).ratio()


UNCOUNTED = "num_batches_tracked"
"""Batch norms count training batches; every table drops the number by kind."""


@dataclass(frozen=True)
class Fates:
    """Moves and ties of a table, the tensors by their honest names."""

    moves: tuple[Move, ...]
    ties: Mapping[str, str]

    def fills(self, tensor: str) -> frozenset[str]:
        """The variables that a tensor fills, by itself or as part of what fills them."""
        name = self.ties.get(tensor, tensor)
        return frozenset(target for move in self.moves if name in move.sources for target in move.targets)

    def apply(self, state: Mapping[str, Array]) -> dict[str, Array]:
        """Every variable that is filled, in float64."""
        found: dict[str, Array] = {}
        for move in self.moves:
            made = move.apply([np.asarray(state[name], np.float64) for name in move.sources], rounded=False)
            found |= dict(zip(move.targets, made, strict=True))
        return found


def fates_of(table: Table, sources: Shapes, targets: Shapes, honest: Mapping[str, str]) -> Fates:
    """What a table that may be incomplete says of these tensors.

    The public :func:`wdport.mapping.plan.make_plan` gives misfits or a whole plan; a table of a search that stopped is
    half of one, so its draft is looked at.
    """
    draft = _Draft([row for row in table.rows if row.when is None], sources, targets, {})
    draft.place_all()
    moves = (
        replace(move, sources=tuple(honest.get(name, name) for name in move.sources))
        for move in draft.moves
        if all(target in targets for target in move.targets)
    )
    return Fates(tuple(moves), {honest.get(a, a): honest.get(b, b) for a, b in draft.ties.items()})


def compared(truth: Fates, found: Fates, state: Mapping[str, Array]) -> dict[str, bool]:
    """Whether the second says of every tensor what the first does: it fills the same variables with the same values."""
    ours, theirs = truth.apply(state), found.apply(state)
    return {
        tensor: found.fills(tensor) <= truth.fills(tensor)
        and all(_same(ours[path], theirs.get(path)) for path in truth.fills(tensor))
        for tensor in state
        if not tensor.endswith(UNCOUNTED)
    }


def _same(ours: Array, theirs: Array | None) -> bool:
    return theirs is not None and ours.shape == theirs.shape and np.allclose(ours, theirs, rtol=1e-12, atol=1e-300)


def doubted(doubts: Sequence[str], tensor: str, given: str, fills: frozenset[str]) -> bool:
    """Whether a doubt names the tensor (by its given name), its module, or a variable of the truth or its layer.

    A doubt about everything, or about a block of several layers, is none about a tensor.
    """
    paths = {given, given.rpartition(".")[0]}
    for path in fills:
        paths |= {path, path.rpartition("/")[0]}
    return any(_matches(word, path) for text in doubts for word in _paths(text) for path in paths if path)


def _paths(text: str) -> Iterator[str]:
    for word in re.findall(r"[\w./<>+-]+", text):
        yield word.strip(".,:/-")


def _matches(word: str, path: str) -> bool:
    if not word:
        return False
    pattern = "".join(r"\d+" if part.startswith("<") else re.escape(part) for part in re.split(r"(<[^>]*>)", word))
    return re.fullmatch(pattern, path) is not None
