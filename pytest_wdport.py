"""A pytest plugin: one test per gate and layer of the given checkpoints and their ports, and two fixtures.

``pytest --wdport-checkpoint small.ckpt --wdport-converted small.keras`` adds tests to the run with ids such as
``wdport::small.ckpt::float64::level_transformers.0.blocks.0.norm1``. Their names come from the mapping table and from
the reference, which is built but not run; `wdport.verify` runs once per pair and process, with the first of its tests.
Every option has an entry of the same name in pytest's configuration file. Importing this module imports only pytest.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

if TYPE_CHECKING:
    from wdport.base.options import Declared
    from wdport.parity.pytest_items import Tested, Verdicts
    from wdport.parity.verdict import Verdict
    from wdport.parity.verify_options import Pair

Verify = Callable[..., "Verdict"]


@dataclass(frozen=True)
class Option:
    """``--wdport-NAME``, and ``wdport_NAME`` in the configuration file. A ``pair`` option is given once for every pair,
    in order; the others apply to all pairs."""

    name: str
    help: str
    metavar: str = "FILE"
    kind: Literal["pair", "one", "several", "flag"] = "one"
    file: bool = True
    former: str = ""
    """A name that it had, and that still works."""

    @property
    def flags(self) -> tuple[str, ...]:
        """Its names on the command line."""
        return tuple(f"--wdport-{name}" for name in (self.name, self.former) if name)

    @property
    def key(self) -> str:
        """Its name in the configuration file."""
        return _key(self.name)


def _key(name: str) -> str:
    return f"wdport_{name.replace('-', '_')}"


OPTIONS = (  # options of verify: made by make options
    Option("checkpoint", "The PyTorch checkpoint of the port to test.", kind="pair"),
    Option("against", "A recording made by `wdport record`, to verify without the checkpoint and without torch.",
                      kind="pair"),
    Option("converted", "The converted file of each checkpoint or recording; one per pair, in the order of the "
                        "pairs. [default: the .keras file next to it]", kind="pair"),
    Option("baseline", "File with the errors of an earlier run, such as parity-baseline.json; one per pair, in "
                       "the order of the pairs.", kind="pair"),
    Option("sha256", "The SHA-256 that the checkpoint must have; one per pair, in the order of the pairs.",
                     metavar="HEX", kind="pair", file=False),
    Option("policy", "File with bounds and waivers, such as parity.toml."),
    Option("mapping", "A mapping table of your own. [default: the shipped one that fits]"),
    Option("input", "One input, such as 'x: b 3 48 48' or 'ids: b t=8..64, below 1000'; docs/inputs.md describes "
                    "the notation.", metavar="'NAME: AXES'", kind="several", file=False),
    Option("reference", "Your own PyTorch model, instead of the built-in reference.",
                        metavar="MODULE:FUNCTION", file=False),
    Option("config", "Training configuration, to compare with the one in the converted file."),
    Option("set", "One configuration value, such as num_heads=8; repeatable.",
                  metavar="KEY=VALUE", kind="several", file=False),
    Option("norm-stats", "Statistics of the training data: mean, std and feature names (JSON, NPZ)."),
    Option("data", "Training data (CSV, NPY, ARFF, MAT), from which the statistics are computed."),
    Option("transform", "How windows were computed from the data: zscore, log1p-volume, ohlc-atr, or your own "
                        "MODULE:CLASS.", metavar="NAME", file=False),
    Option("keras-model", "Function that builds your own Keras model, if the table does not name it.",
                          metavar="MODULE:FUNCTION", file=False, former="model"),
    Option("key", "Key of the state_dict, if the file has several; or ema for the averaged weights, raw for the "
                  "unaveraged ones. [default: automatic]", metavar="NAME", file=False),
    Option("full", "Also compare bfloat16, gradients, training mode, optimizer steps and sampling.", kind="flag"),
    Option("with-optimizer", "Also compare training steps from the converted optimizer's state.",
                             kind="flag", former="resume"),
    Option("train", "Also compare both models in training mode: gradients, dropout, batch statistics, and trained"
                    " weights.", kind="flag"),
    Option("schedule-class", "Class of the checkpoint's learning-rate schedule, for --wdport-with-optimizer.",
                             metavar="MODULE:CLASS", file=False, former="schedule"),
    Option("seed", "Random seed of the inputs.", metavar="N", file=False),
    Option("cases", "Compare on N additional random inputs.", metavar="N", file=False),
    Option("fresh", "Also compare on new inputs and weights, with the port in a separate process. [default with "
                    "--wdport-policy]", kind="flag"),
    Option("no-fresh", "With a policy, skip the comparison on new inputs and weights.", kind="flag"),
    Option("no-canary", "With a policy or baseline, skip the known-fault check.", kind="flag"),
)  # end of options  # fmt: skip
SOURCES = ("checkpoint", "against")
FOLLOWING = ("converted", "baseline", "sha256")
"""The options of a pair: those that name it, and the others."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("wdport", "parity of PyTorch checkpoints and their ports")
    for each in OPTIONS:
        if each.kind == "flag":
            group.addoption(*each.flags, action="store_true", help=each.help)
            entry: dict[str, Any] = {"type": "bool", "default": False}
        elif each.kind == "one":
            group.addoption(*each.flags, metavar=each.metavar, help=each.help)
            entry = {"type": "string", "default": ""}
        else:
            more = " May be given several times."
            group.addoption(*each.flags, metavar=each.metavar, action="append", help=each.help + more)
            entry = {"type": "linelist", "default": []}
        parser.addini(each.key, each.help, **entry)
        if each.former:
            parser.addini(_key(each.former), f"The former name of {each.key}.", **entry)


def pytest_configure(config: pytest.Config) -> None:
    """Check the pairs and the policy, so that an error in them ends the run before it starts."""
    config.addinivalue_line("markers", "wdport: a comparison of a PyTorch model and its port")
    Given(config).require_values()
    if Given(config).tested:
        _pairs(config)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Pass to workers whether the command line has paths: pytest-xdist always passes them some."""
    node.workerinput["wdport_tested"] = Given(node.config).tested


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Add the tests before ``-k`` and ``--deselect`` are applied."""
    if Given(session.config).tested and (pairs := _pairs(session.config)):
        from wdport.parity.pytest_items import Root

        items.extend(session.genitems(Root.from_parent(session, name="wdport", nodeid="wdport", pairs=pairs)))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Name what a policy allows in pairs that pass, and what was not done."""
    reports = [report for several in terminalreporter.stats.values() for report in several]
    named = (text for report in reports for name, text in getattr(report, "user_properties", ()) if name == "wdport")
    for text in dict.fromkeys(named):
        terminalreporter.write_line(f"wdport: {text}")


@pytest.fixture(scope="session")
def wdport_verify(pytestconfig: pytest.Config) -> Verify:
    """``wdport_verify(checkpoint, converted=None, **others)`` returns the verdict under the policy; runs once per pair
    and process, and again if a file has changed.

    ``converted`` defaults to the ``.keras`` file next to the checkpoint. ``others`` are ``baseline``, and the fields of
    :class:`wdport.parity.verify_options.Pair`, which default to the options. Raises what `wdport.verify` raises.
    """
    from wdport.parity.pytest_items import Tested

    def verify(checkpoint: Any = None, converted: Any = None, *, baseline: Any = None, **others: Any) -> Verdict:
        source = others.get("against") if checkpoint is None else checkpoint
        if source is None:
            raise TypeError("wdport_verify needs a checkpoint, or a recording as against=")
        pair = _pair(Given(pytestconfig), converted or _beside(Path(source)), checkpoint=checkpoint, **others)
        pair.look()
        return _verdicts(pytestconfig).of(Tested(pair, baseline))

    return verify


@pytest.fixture(scope="session")
def wdport_verdict(pytestconfig: pytest.Config) -> Verdict:
    """The verdict of the first pair; the test fails if there is no pair."""
    pairs = _pairs(pytestconfig)
    if not pairs:
        pytest.fail("wdport_verdict needs a pair: pytest --wdport-checkpoint FILE", pytrace=False)
    return _verdicts(pytestconfig).of(pairs[0])


_PAIRS = pytest.StashKey[list["Tested"]]()


class Given:
    """The options of a run: from the command line, or else from the configuration file."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @property
    def named(self) -> bool:
        """Whether the command line names a pair."""
        return any(self._config.getoption(f"--wdport-{name}") for name in SOURCES)

    @property
    def tested(self) -> bool:
        """Whether the pairs are tested. Those of the configuration file are not, as its ``testpaths`` are not, if the
        command line names files or folders."""
        passed: bool | None = getattr(self._config, "workerinput", {}).get("wdport_tested")
        if passed is not None:
            return passed
        return self.named or self._config.args_source is not pytest.Config.ArgsSource.ARGS

    def require_values(self) -> None:
        """Raise ``pytest.UsageError`` for an option without a value, such as that of an unset variable."""
        for option in OPTIONS:
            value = self._config.getoption(f"--wdport-{option.name}")
            if value == "" or (isinstance(value, list) and "" in value):
                raise pytest.UsageError(f"--wdport-{option.name} is empty; give {option.metavar}, or leave it out")

    def of(self, option: Option, ini: bool = True) -> Any:
        """The value of an option, files as paths; a list if it may be given several times."""
        value, folder = self._config.getoption(f"--wdport-{option.name}"), self._config.invocation_params.dir
        if not value and ini:
            value, file = self._config.getini(option.key), self._config.inipath
            value = value or (self._config.getini(_key(option.former)) if option.former else value)
            folder = file.parent if file is not None else self._config.rootpath
        if isinstance(value, list):
            return [folder / each if option.file else each for each in value]
        return folder / value if value and option.file and option.kind == "one" else value or None

    def by_pair(self) -> dict[str, list[Any]]:
        """The options that are given once for every pair. Pairs on the command line replace those of the file."""
        options = [each for each in OPTIONS if each.kind == "pair"]
        return {each.name: self.of(each, ini=not self.named) or [] for each in options}

    def shared(self) -> dict[str, Any]:
        """The options that apply to all pairs."""
        return {each.name: self.of(each) for each in OPTIONS if each.kind != "pair"}


def _pairs(config: pytest.Config) -> list[Tested]:
    """The pairs, determined once; raises only ``pytest.UsageError``, as required before collection."""
    if _PAIRS not in config.stash:
        config.stash[_PAIRS] = _tested_pairs(config)
    return config.stash[_PAIRS]


def _tested_pairs(config: pytest.Config) -> list[Tested]:
    given = Given(config)
    named = given.by_pair()
    sources = [(name, file) for name in SOURCES for file in named[name]]
    for name in FOLLOWING:
        if len(named[name]) > len(sources):
            raise pytest.UsageError(f"--wdport-{name} is given more often than --wdport-checkpoint")
    if not sources:
        return []
    from wdport.base.errors import WdportError
    from wdport.parity.pytest_items import Tested, message

    verdicts = _verdicts(config)
    ports = named["converted"] + [_beside(file) for _, file in sources[len(named["converted"]) :]]
    for name, file in [*sources, *(("converted", file) for file in ports)]:
        if not file.exists():
            raise pytest.UsageError(f"--wdport-{name}: there is no {_shown(file)}")
    labels, found = _labels([file for _, file in sources], ports), []
    try:
        for at, (name, file) in enumerate(sources):
            baseline, sha256 = ((named[each][at : at + 1] or [None])[0] for each in ("baseline", "sha256"))
            found.append(Tested(_pair(given, ports[at], sha256=sha256, **{name: file}), baseline, labels[at]))
            verdicts.terms(found[-1])
    except WdportError as error:
        raise pytest.UsageError(message(error)) from None
    return found


def _beside(source: Path) -> Path:
    """The converted file next to a checkpoint, or to a recording, which `wdport record` calls NAME.run.npz."""
    name = source.with_suffix("")
    return (name if source.suffix != ".npz" or name.suffix != ".run" else name.with_suffix("")).with_suffix(".keras")


def _verdicts(config: pytest.Config) -> Verdicts:
    """The verdicts of this run, under the policy of its options."""
    from wdport.parity.pytest_items import VERDICTS, Verdicts

    if VERDICTS not in config.stash:
        shared = Given(config).shared()
        config.stash[VERDICTS] = Verdicts(shared["policy"], canaries=not shared["no-canary"])
    return config.stash[VERDICTS]


def _pair(given: Given, converted: Any, **changed: Any) -> Pair:
    """A pair of these files, with the options for all pairs except those ``changed``."""
    from wdport.base.options import options_of
    from wdport.cli.click_options import parse_values
    from wdport.parity.verify_options import Pair, is_fresh

    shared, declared = given.shared(), options_of(Pair)
    fields = {name: value for name, each in declared.items() if (value := shared.get(each.title))}
    fields["fresh"] = is_fresh(
        bool(shared["fresh"]), bool(shared["no-fresh"]), shared["policy"], changed.get("against")
    )
    fields |= {"values": parse_values(tuple(shared["set"] or ())), **changed}
    fields["values"] = dict(fields["values"]).items()
    fields |= {name: _typed(declared[name], value) for name, value in fields.items() if name in declared}
    pair = Pair(converted, **fields)
    pair.require_consistent()
    return pair


def _typed(declared: Declared, value: Any) -> Any:
    """The value of an option in the type that is declared for it."""
    if declared.base is bool:
        return bool(value)
    if declared.base is int:
        if not str(value or 0).isdecimal():
            raise pytest.UsageError(f"--wdport-{declared.title}: {value!r} is not a whole number")
        return int(value or 0)
    return tuple(value or ()) if declared.repeats else value


def _labels(sources: list[Path], ports: list[Path]) -> list[str]:
    """The sources' file names; their paths if two are equal, with those of their ports if these are equal too."""
    shown, both = list(map(_shown, sources)), zip(sources, ports, strict=True)
    labels = [file.name for file in sources]
    for longer in (shown, [f"{_shown(source)}={_shown(port)}" for source, port in both]):
        count = Counter(labels)
        labels = [other if count[label] > 1 else label for label, other in zip(labels, longer, strict=True)]
    labels = [label.replace("::", "__") for label in labels]  # pytest's own separator
    for label, times in Counter(labels).items():
        if times > 1:
            raise pytest.UsageError(f"--wdport-checkpoint: {label} is given twice")
    return labels


def _shown(file: Path) -> str:
    """A path as the user probably wrote it."""
    return os.path.relpath(file) if file.is_relative_to(Path.cwd()) else str(file)
