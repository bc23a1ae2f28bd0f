"""A pytest plugin: checkpoints and their ports as options in, one test per gate and layer out, and two fixtures.

``pytest --wdport-checkpoint small.ckpt --wdport-converted small.keras`` adds tests to the run with ids such as
``wdport::small.ckpt::A::level_transformers.0.blocks.0.norm1``. Their names come from the mapping table and from
the reference, which is built with zero weights and not run; `wdport.verify` runs once per pair and process, when
the first of its tests does. Importing this module imports nothing beside pytest.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from wdport.compare.findings import Gate
    from wdport.parity.policy import Policy
    from wdport.parity.policy.explain import Outcome
    from wdport.parity.verdict import Verdict

PER_TAP = ("A", "B")
WHOLE = {"0": "preflight", "A'": "constants"}
"""Gates with a test of their own beside those that judge every layer; ``verdict`` is about all gates."""

Verify = Callable[..., "Verdict"]


@dataclass(frozen=True)
class Pair:
    """A checkpoint, its port, and what their tests are called."""

    checkpoint: Path
    converted: Path
    label: str


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("wdport", "parity of PyTorch checkpoints and their ports")
    group.addoption("--wdport-checkpoint", metavar="FILE", action="append", default=[],
                    help="Test the port of this PyTorch checkpoint; may be given several times.")  # fmt: skip
    group.addoption("--wdport-converted", metavar="FILE", action="append", default=[],
                    help="The converted file of the checkpoint in the same place of the order. "
                         "[default: the .keras file beside the checkpoint]")  # fmt: skip
    group.addoption("--wdport-policy", metavar="FILE", help="Bounds and waivers, such as parity.toml.")
    group.addoption("--wdport-no-canary", action="store_true",
                    help="Under a policy: do not try first whether known faults are still found.")  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Settle the pairs and the policy, so that what is wrong with them ends the run before it starts."""
    pairs = _pairs(config)
    policy = _policy(config.getoption("--wdport-policy"), config) if pairs else None
    config.stash[_PAIRS] = pairs
    config.stash[_VERDICTS] = Verdicts(policy, not config.getoption("--wdport-no-canary"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Add the tests before ``-k`` and ``--deselect`` choose among all."""
    if session.config.stash[_PAIRS]:
        items.extend(session.genitems(_Root.from_parent(session, name="wdport", nodeid="wdport")))


@pytest.fixture(scope="session")
def wdport_verify(pytestconfig: pytest.Config) -> Verify:
    """``wdport_verify(checkpoint, converted=None)``: the verdict under the policy, one run per pair and process.

    ``converted`` is the ``.keras`` file beside the checkpoint if None; ``mapping`` and ``key`` may be given as
    for `wdport.verify`. Raises what that raises.
    """
    return pytestconfig.stash[_VERDICTS].get


@pytest.fixture(scope="session")
def wdport_verdict(pytestconfig: pytest.Config, wdport_verify: Verify) -> Verdict:
    """The verdict of the first pair of the command line; without one, the test fails."""
    pairs = pytestconfig.stash[_PAIRS]
    if not pairs:
        pytest.fail("wdport_verdict needs a pair: pytest --wdport-checkpoint FILE", pytrace=False)
    return wdport_verify(pairs[0].checkpoint, pairs[0].converted)


class Verdicts:
    """Verdicts under one policy; every pair is run once, and its error is kept as its verdict is."""

    def __init__(self, policy: Policy | None, canaries: bool = True) -> None:
        self._policy, self._canaries = policy, canaries
        self._known_faults: Gate | None = None
        self._known: dict[tuple[str | None, ...], Verdict | Exception] = {}

    def get(
        self,
        checkpoint: str | os.PathLike[str],
        converted: str | os.PathLike[str] | None = None,
        *,
        mapping: str | os.PathLike[str] | None = None,
        key: str | None = None,
    ) -> Verdict:
        """The pair's verdict; raises what `wdport.verify` raises, again for every call."""
        files = (Path(checkpoint), Path(converted) if converted else Path(checkpoint).with_suffix(".keras"))
        places = [os.path.realpath(file) for file in files]
        call = (*places, os.path.realpath(mapping) if mapping else None, key)
        if call not in self._known:
            try:
                self._known[call] = self._run(*files, mapping, key)
            except Exception as error:
                self._known[call] = error
        found = self._known[call]
        if isinstance(found, Exception):
            raise found
        return found

    def _run(self, checkpoint: Path, converted: Path, mapping: Any, key: str | None) -> Verdict:
        import wdport

        with _calm():
            verdict = wdport.verify(checkpoint, converted, mapping=mapping, key=key)
        if self._policy is None:
            return verdict
        from wdport.parity.gated import Terms, judge
        from wdport.parity.selftest.canaries import canary_gate

        terms = Terms(self._policy)
        if self._canaries and self._known_faults is None:
            self._known_faults = canary_gate(terms.policy)
        return judge(verdict, terms, datetime.now(UTC).date(), self._known_faults)


@contextmanager
def _calm() -> Iterator[None]:
    """Warnings inside are shown and never raised: a library's warning is no reason to find a port different."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        yield


_PAIRS = pytest.StashKey[list[Pair]]()
_VERDICTS = pytest.StashKey[Verdicts]()


class _Root(pytest.Collector):
    """All pairs of the command line; ``-k wdport`` means their tests."""

    def collect(self) -> Iterator[pytest.Collector]:
        for pair in self.config.stash[_PAIRS]:
            yield _Pair.from_parent(self, name=pair.label, pair=pair)


class _Pair(pytest.Collector):
    """One pair's tests; a collection error where the names of its layers cannot be told."""

    def __init__(self, *, pair: Pair, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.pair = pair
        self.taps: tuple[str, ...] = ()

    def collect(self) -> Iterator[pytest.Item]:
        from wdport.errors import WdportError

        try:
            with _calm():
                self.taps = tap_names(self.pair.checkpoint, self.pair.converted)
        except WdportError as error:
            raise self.CollectError("\n".join([str(error), *error.details])) from None
        names = [*WHOLE.items(), *((gate, tap) for gate in PER_TAP for tap in self.taps), ("verdict", "")]
        for gate, tap in names:
            yield ParityItem.from_parent(self, name=f"{gate}::{tap}" if tap else gate, gate=gate, tap=tap)


class ParityItem(pytest.Item):
    """One gate and one layer of a pair; ``tap`` is "" where the test is about the whole pair."""

    def __init__(self, *, gate: str, tap: str, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.gate, self.tap = gate, tap

    def runtest(self) -> None:
        from wdport.errors import WdportError

        owner = self.parent
        assert isinstance(owner, _Pair)
        try:
            verdict = self.config.stash[_VERDICTS].get(owner.pair.checkpoint, owner.pair.converted)
        except WdportError as error:
            _fail(str(error), *error.details)
        outcome = self._outcome(owner, verdict)
        if outcome.faults:
            _fail(*outcome.faults)
        if outcome.waived:
            pytest.xfail(f"waived {outcome.waived}")
            _fail(f"waived {outcome.waived}")  # under --runxfail

    def _outcome(self, owner: _Pair, verdict: Verdict) -> Outcome:
        from wdport.parity.policy.explain import gate_outcome, tap_outcome, verdict_outcome

        if self.gate == "verdict":
            return verdict_outcome(verdict, owner.taps)
        if self.gate in PER_TAP:
            return tap_outcome(verdict, self.gate, self.tap)
        return gate_outcome(verdict, self.gate)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Where pytest says that the test is; the words head its failure."""
        return self.path, None, f"gate {self.name.replace('::', ', ')} of {self.parent.name if self.parent else ''}"


def tap_names(checkpoint: Path, converted: Path) -> tuple[str, ...]:
    """The layers that `wdport.verify` will compare, without running a model or reading a weight.

    Raises ``WdportError`` where one of the files is bad or the two do not fit.
    """
    import numpy as np

    from wdport.conversion.load import open_converted
    from wdport.conversion.prepare import Settings, prepare
    from wdport.errors import MachineError
    from wdport.recorder import module_names

    known = {name: value for name, value in asdict(open_converted(converted).config).items() if value is not None}
    with prepare(checkpoint, Settings(known=known)) as prepared:
        table, family, tensors = prepared.table, prepared.family, prepared.checkpoint.tensors
        extra = [name for row in table.rows if row.optional or row.drop is not None for name in row.torch]
        zeros = {name: np.zeros(info.shape, np.float32) for name, info in tensors.items()
                 if all(name_pattern.match(name) is None for name_pattern in extra)}  # fmt: skip
        features = family.features(prepared.config)
        try:
            module = family.build_reference(prepared.config, zeros, "float32")
        except ModuleNotFoundError as error:
            what = f"the reference needs {error.name}, which is not installed"
            raise MachineError("verify", what, "install wdport[torch]") from None
    rows = [row.torch for row in table.taps if row.when is None or row.when in features]
    return (*(name for name in module_names(module) if any(row.match(name) is not None for row in rows)), "output")


def _fail(*lines: str) -> NoReturn:
    from wdport.errors import printable

    pytest.fail("\n".join(printable(line, 240) for line in lines), pytrace=False)


def _pairs(config: pytest.Config) -> list[Pair]:
    checkpoints, converted = config.getoption("--wdport-checkpoint"), config.getoption("--wdport-converted")
    if len(converted) > len(checkpoints):
        raise pytest.UsageError("--wdport-converted is given more often than --wdport-checkpoint")
    if config.getoption("--wdport-policy") and not checkpoints:
        raise pytest.UsageError("--wdport-policy is given without --wdport-checkpoint")
    folder = config.invocation_params.dir
    _files("checkpoint", folder, checkpoints)
    ports = converted + [str(Path(name).with_suffix(".keras")) for name in checkpoints[len(converted) :]]
    _files("converted", folder, ports)
    labels = _labels(checkpoints, ports)
    return [Pair(folder / c, folder / p, label) for c, p, label in zip(checkpoints, ports, labels, strict=True)]


def _files(option: str, folder: Path, names: list[str]) -> None:
    for name in names:
        if not (folder / name).is_file():
            raise pytest.UsageError(f"--wdport-{option}: {name or 'an empty name'} is no file")


def _labels(checkpoints: list[str], ports: list[str]) -> list[str]:
    """The checkpoints' file names; where two are alike their paths, and their ports' beside them."""
    labels, both = [Path(name).name for name in checkpoints], zip(checkpoints, ports, strict=True)
    for longer in (checkpoints, [f"{c}={p}" for c, p in both]):
        count = Counter(labels)
        labels = [other if count[label] > 1 else label for label, other in zip(labels, longer, strict=True)]
    labels = [label.replace("::", "__") for label in labels]  # pytest's own separator
    for label, times in Counter(labels).items():
        if times > 1:
            raise pytest.UsageError(f"--wdport-checkpoint: {label} is given twice")
    return labels


def _policy(path: str | None, config: pytest.Config) -> Policy | None:
    if path is None:
        return None
    from wdport.errors import WdportError
    from wdport.parity.policy import read_policy

    try:
        return read_policy(config.invocation_params.dir / path, datetime.now(UTC).date())
    except WdportError as error:
        raise pytest.UsageError(f"--wdport-policy: {error}") from None
