"""A pair's tests in pytest: one per gate and layer, and one run of the comparison for all of them.

The plugin, ``pytest_wdport`` next to this package, imports this module if there is something to test.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from wdport.base.errors import WdportError, flag, printable
from wdport.base.options import PathText, options_of
from wdport.compare.findings import GATES, label
from wdport.parity.pair_verdict import judged_pair
from wdport.parity.planned_items import expected
from wdport.parity.policy.explain import ItemOutcome, gate_outcome, layer_outcome, verdict_outcome
from wdport.parity.policy.judge import Terms, read_terms
from wdport.parity.reports.phrases import allowances
from wdport.parity.selftest.known_faults import KnownFaults
from wdport.parity.verify_options import Pair

if TYPE_CHECKING:
    from wdport.parity.verdict import Verdict

PER_LAYER = ("A", "B")
"""The gates that judge every layer; the others have one test each, and ``verdict`` covers all gates."""


@dataclass(frozen=True)
class Tested:
    """A pair, its baseline, and the name of its tests."""

    pair: Pair
    baseline: Path | None
    label: str = ""


class Verdicts:
    """Verdicts under one policy; a pair is run once, or again if a file changes, and its verdict or error is cached."""

    def __init__(self, policy: PathText | None, canaries: bool = True) -> None:
        self.policy, self.canaries = policy, canaries
        self._known_faults = KnownFaults()
        self._known: dict[tuple[Pair, str | None, tuple[tuple[int, int], ...]], Verdict | Exception] = {}

    def terms(self, tested: Tested) -> Terms:
        """The policy and baseline of the pair; raises :class:`WdportError` if one of the files is wrong."""
        return read_terms(self.policy, tested.baseline, datetime.now(UTC).date())

    def of(self, tested: Tested) -> Verdict:
        """The verdict; raises what `wdport.verify` raises, at every call."""
        pair = _real(tested.pair)
        call = (pair, os.path.realpath(tested.baseline) if tested.baseline else None, _changes(pair))
        if call not in self._known:
            try:
                with calm():
                    self._known[call] = self._run(tested)
            except Exception as error:
                # Also the error: otherwise every test of the pair would run the comparison again.
                self._known[call] = error
        result = self._known[call]
        if isinstance(result, Exception):
            raise result
        return result

    def _run(self, tested: Tested) -> Verdict:
        known_faults = self._known_faults if self.canaries else None
        return judged_pair(tested.pair, self.terms(tested), datetime.now(UTC).date(), known_faults)


def _changes(pair: Pair) -> tuple[tuple[int, int], ...]:
    """Size and time of change of the pair's files."""
    files = [*pair.files.values(), pair.converted]
    facts = [os.stat(path) for path in files if path and os.path.exists(path)]
    return tuple((fact.st_size, fact.st_mtime_ns) for fact in facts)


def _real(pair: Pair) -> Pair:
    """The pair with resolved paths, so that equal pairs compare equal."""
    files = [field.name for field in options_of(Pair).values() if field.option.files]
    paths = {name: path for name in files if (path := getattr(pair, name)) is not None}
    return replace(pair, **{name: os.path.realpath(path) for name, path in paths.items()})


@contextmanager
def calm() -> Iterator[None]:
    """Show warnings inside and never raise them: a library's warning does not make a port different."""
    with warnings.catch_warnings():
        # A project's `filterwarnings = error` would raise warnings of JAX or torch inside the comparison.
        warnings.simplefilter("default")
        yield


VERDICTS = pytest.StashKey[Verdicts]()


class Root(pytest.Collector):
    """All pairs; ``-k wdport`` and ``-m wdport`` select their tests."""

    def __init__(self, *, pairs: Sequence[Tested], **arguments: Any) -> None:
        super().__init__(**arguments)
        self.pairs = pairs

    def collect(self) -> Iterator[pytest.Collector]:
        for tested in self.pairs:
            yield _Pair.from_parent(self, name=tested.label, tested=tested)


class _Pair(pytest.Collector):
    """One pair's tests; one that fails if the names of its layers cannot be determined."""

    def __init__(self, *, tested: Tested, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.tested = tested
        self.layers: tuple[str, ...] = ()

    def collect(self) -> Iterator[pytest.Item]:
        try:
            with calm():
                self.tested.pair.look()
                planned = expected(self.tested.pair)
        except WdportError as error:
            # A collection error would stop the tests of everything else.
            yield ParityItem.from_parent(self, name="verdict", letter="", refusal=error)
            return
        self.layers = planned.layers
        # The tests must be named at collection, before anything runs, so that -k and xdist can select them.
        for letter, term in GATES.items():
            name = term.name.replace(" ", "-")
            if letter in PER_LAYER:
                for layer in planned.layers:
                    yield ParityItem.from_parent(self, name=f"{name}::{layer}", letter=letter, layer=layer)
            elif letter in (*planned.gates, *self._terms()):
                yield ParityItem.from_parent(self, name=name, letter=letter)
        yield ParityItem.from_parent(self, name="verdict", letter="")

    def _terms(self) -> Iterator[str]:
        """The gates of the policy, the baseline and the known faults."""
        verdicts = self.config.stash[VERDICTS]
        terms = verdicts.terms(self.tested)
        if terms.any and verdicts.canaries:
            yield "S"
        if terms.policy is not None and not terms.policy.empty:
            yield "P"
        if terms.baseline is not None:
            yield "R"


class _Everything(str):
    """A keyword that contains every other."""

    def __contains__(self, _: object) -> bool:
        return True

    def lower(self) -> _Everything:
        return self


class ParityItem(pytest.Item):
    """One gate and one layer of a pair; ``layer`` is "" if the test is about the whole pair, ``letter`` is "" if it is
    about all gates. With a ``refusal`` the pair cannot be compared, and the test fails."""

    def __init__(self, *, letter: str, layer: str = "", refusal: WdportError | None = None, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.letter, self.layer, self.refusal = letter, layer, refusal
        self.add_marker("wdport")
        if refusal is not None:  # -k could name one of the layers, which are not known
            self.extra_keyword_matches.add(_Everything())
        if letter:  # so that -k "A::norm1" chooses as -k "float64::norm1" does
            self.extra_keyword_matches.add(f"{letter}::{layer}")

    def runtest(self) -> None:
        owner = self.parent
        assert isinstance(owner, _Pair)
        if self.refusal is not None:
            _fail(message(self.refusal), *self.refusal.details)
        try:
            verdict = self.config.stash[VERDICTS].of(owner.tested)
        except WdportError as error:
            _fail(message(error), *error.details)
        self.user_properties += [("wdport", text) for text in allowances(verdict)]
        outcome = self._outcome(owner, verdict)
        if outcome.faults:
            _fail(*outcome.faults)
        if outcome.waived:
            pytest.xfail(f"waived {outcome.waived}")
            _fail(f"waived {outcome.waived}")  # under --runxfail
        if outcome.left_out:
            pytest.skip(f"compared by its parts alone: {outcome.left_out}")

    def _outcome(self, owner: _Pair, verdict: Verdict) -> ItemOutcome:
        if not self.letter:
            return verdict_outcome(verdict, owner.layers)
        return layer_outcome(verdict, self.letter, self.layer) if self.layer else gate_outcome(verdict, self.letter)

    def reportinfo(self) -> tuple[Path, None, str]:
        """The location that pytest reports, and the heading of a failure."""
        what = ", ".join(filter(None, (label(self.letter) or self.name, self.layer)))
        return self.path, None, f"{what} of {self.parent.name if self.parent else ''}"


def message(error: WdportError) -> str:
    """An error's message, with the plugin's option names in place of the command's."""
    from pytest_wdport import OPTIONS

    names = {f"--{option.name}" for option in OPTIONS}
    return error.line(lambda name, value: flag(f"--wdport-{name[2:]}" if name in names else name, value))


def _fail(*lines: str) -> NoReturn:
    pytest.fail("\n".join(printable(line, 240) for line in lines), pytrace=False)
