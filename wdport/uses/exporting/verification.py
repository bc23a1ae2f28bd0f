"""Verify an artifact: run every program in a process without wdport, Keras and PyTorch, and compare the outputs with
the model's.

As in the gate float32, errors are relative to the model in float64, and are multiples of the model's own error.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any, Final

import jax
import keras  # before our modules that need it: importing it imports the ports
import numpy as np

from wdport.base.errors import InputError, MachineError, UsageError, printable
from wdport.base.jax_settings import cache_variables
from wdport.base.platforms import plain_environment
from wdport.base.version import VERSION
from wdport.compare.activities import Say
from wdport.compare.findings import GATES, Finding, Gate, Measure, fact, measure
from wdport.compare.gate_bounds import NUMERICS, UNIT_ROUNDOFF, UNIT_ROUNDOFF_16
from wdport.compare.measure import ErrorPair, relative_l2
from wdport.conversion.load import Converted
from wdport.files.atomic import scratch_folder
from wdport.files.inputs import Snapshot
from wdport.models.interface import Array
from wdport.parity.verdict import ComparisonResult
from wdport.uses.diffusion.plans import SamplingPlan
from wdport.uses.exporting.api import condition_facts
from wdport.uses.exporting.artifact import EXPORT_AGAIN, PROGRAM, VerificationDocument, member_digests, read_facts
from wdport.uses.exporting.model_side import (
    ModelSide,
    ProgramTrial,
    denoiser_trials,
    network_trials,
    sampler_plan,
    sampler_trials,
)
from wdport.uses.sampling.network import Network

Call = tuple[str, Sequence[Array]]
"""The name of a program, and its inputs."""

HERE: Final = Path(__file__).parent
NEEDED: Final = ("jax", "jaxlib", "numpy", "scipy", "ml_dtypes", "opt_einsum", "flatbuffers")
"""What the loader needs, and what jax needs."""


@dataclass(frozen=True)
class Result:
    """The outputs of one call and their dtypes, of which bfloat16 is given in float32; or the reason why it failed."""

    outputs: tuple[Array, ...] = ()
    dtypes: tuple[str, ...] = ()
    error: str = ""


def run_calls(path: Path, sha256: str, calls: Sequence[Call]) -> list[Result]:
    """Run the calls of an artifact with this SHA-256; raises :class:`InputError` if it cannot be loaded."""
    with scratch_folder() as folder:
        shutil.copy(HERE / "loader.py", folder)
        (folder / "calls.json").write_text(json.dumps([program for program, _ in calls]))
        arrays: dict[str, Any] = {f"{index}.{place}": array for index, (_, inputs) in enumerate(calls)
                                  for place, array in enumerate(inputs)}  # fmt: skip
        np.savez(folder / "inputs.npz", **arrays)
        # Both processes have programs on the device, so neither may reserve its memory in advance.
        environment = {**plain_environment(), **cache_variables(), "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        # -I: neither the environment nor the current folder can add modules.
        command = [
            sys.executable,
            "-I",
            str(HERE / "isolated.py"),
            str(folder),
            str(path.absolute()),
            sha256,
            *_installed(),
        ]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, cwd=folder,
                              stdin=subprocess.DEVNULL, env=environment)  # fmt: skip
        if done.returncode:
            # The last line is the error; jax may warn before it.
            message = (done.stderr.strip().splitlines() or [f"the process ended with {done.returncode}"])[-1]
            what = message.removeprefix(f"{path.absolute()}: ").removesuffix("; export it again")
            raise InputError(path, f"does not run: {printable(what)}", "export the model again")
        results = json.loads((folder / "results.json").read_text())
        with np.load(folder / "outputs.npz") as outputs:
            return [_result(index, result, outputs) for index, result in enumerate(results)]


def _result(index: int, result: dict[str, Any], outputs: Any) -> Result:
    if "error" in result:
        return Result(error=result["error"])
    arrays = tuple(outputs[f"{index}.{place}"] for place in range(len(result["dtypes"])))
    return Result(arrays, tuple(result["dtypes"]))


def _installed() -> list[str]:
    """The folders of the packages, which an isolated Python does not find where an environment variable names them."""
    specs = (importlib.util.find_spec(name) for name in NEEDED)
    return list(dict.fromkeys(str(Path(spec.origin).parents[1]) for spec in specs if spec and spec.origin))


POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16", "float64": "float64"}
"""The Keras dtype policy of an artifact that computes in a dtype."""


@dataclass(frozen=True)
class Verification(ComparisonResult):
    """The result of comparing an exported file with its model.

    ``ratios`` are the largest errors of every program, ``inputs`` the inputs that were compared, in words, and
    ``members`` the SHA-256 of the members of an artifact.
    """

    model: str
    exported: str
    gates: tuple[Gate, ...]
    digests: Mapping[str, str]
    inputs: tuple[str, ...] = ()
    ratios: Mapping[str, float] = field(default_factory=dict)
    members: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    def document(self) -> VerificationDocument:
        """All results, as ``wdport verify --json`` writes them."""
        return VerificationDocument(bool(self), self.complete, self.exit_code, [gate.document() for gate in self.gates],
                                    self.model, self.exported, self.digests, self.inputs, self.ratios, self.members,
                                    self.environment, self.seconds)  # fmt: skip

    def compared(self) -> dict[str, object]:
        """What the facts of the artifact state about it."""
        return {"model": self.digests["model"], "members": dict(self.members), "programs": dict(self.ratios),
                "bound": NUMERICS, "inputs": list(self.inputs), "device": self.environment["device"]}  # fmt: skip


def verify_artifact(converted: Converted, path: Path, say: Say = lambda _: None) -> Verification:
    """Compare an artifact with the model of a converted file.

    Raises:
        InputError: the file is damaged, or its facts are not those that wdport writes.
        MachineError: this machine lacks what the artifact needs.
        UsageError: the artifact computes in a dtype that is not compared.
    """
    started = time.monotonic()
    snapshot, facts, members = Snapshot(path), read_facts(path), member_digests(path)
    _require_facts(path, facts)
    _require_machine(path, facts)
    say("building the model")
    policy = POLICIES[facts["compute_dtype"]]
    side = ModelSide(converted, policy, facts["precision"])
    plan = _plan(path, side.network, facts)
    trials = _trials(converted, side, facts, plan)
    say("running the artifact")
    results = run_calls(path, snapshot.sha256, [(trial.program, trial.inputs) for trial in trials])
    # Built now, so that it is not in memory while the artifact runs.
    exact = side if policy == "float64" else ModelSide(converted, "float64", "highest")
    comparison = ProgramComparison(facts["compute_dtype"])
    for trial, result in zip(trials, results, strict=True):
        say(f"comparing {trial}")
        comparison.add(trial, result, trial.expected(side), trial.expected(exact))
    stated = _stated(converted, side.network, plan, trials, facts)
    stated += _members(facts, members, {trial.program for trial in trials}, converted.snapshot.sha256)
    return Verification(
        str(converted.path), str(path), (comparison.gate(stated),),
        {"model": converted.snapshot.sha256, "exported": snapshot.sha256}, tuple(map(str, trials)),
        comparison.ratios(), members,
        {"wdport": VERSION, "jax": jax.__version__, "keras": keras.__version__, "device": str(jax.devices()[0])},
        time.monotonic() - started,
    )  # fmt: skip


def _require_facts(path: Path, facts: Mapping[str, Any]) -> None:
    """Raise :class:`InputError` unless the facts have the form that is read here."""
    programs = facts.get("programs", {}) if facts.get("what") == "network" else {}
    sampler: Any = facts.get("sampler") if facts.get("what") == "sampler" else {"name": "", "eta": 0.0, "count": None}
    try:
        sound = (
            facts["what"] in ("denoiser", "sampler", "network")
            and facts["precision"] in ("highest", "default")
            and (facts["batch"] is None or 0 < facts["batch"] < 1 << 24)
            and all(isinstance(platform, str) for platform in facts["platforms"])
            and all(isinstance(port["shape"], list) and isinstance(port["name"], str) and port["dtype"]
                    for program in programs.values() for port in (*program["inputs"], *program["outputs"]))
            and isinstance(sampler["name"], str) and isinstance(sampler["eta"], (int, float))
            and (sampler["count"] is None or isinstance(sampler["count"], int))
            and isinstance(sampler.get("spacing"), (str, NoneType))  # former versions state none
        )  # fmt: skip
        if not sound:
            raise InputError(path, "its facts are not those that wdport writes", EXPORT_AGAIN)
        if facts["compute_dtype"] not in POLICIES:
            what = f"computes in {facts['compute_dtype']}, which is not compared"
            raise UsageError(path, what, f"export it in {' or '.join(POLICIES)}")
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(path, f"its facts are not those that wdport writes ({error})", EXPORT_AGAIN) from None


def _require_machine(path: Path, facts: Mapping[str, Any]) -> None:
    """Raise :class:`MachineError` if the artifact cannot run here."""
    if importlib.util.find_spec("flatbuffers") is None:
        what = "running it needs flatbuffers, which is not installed"
        raise MachineError(path, what, "pip install flatbuffers, or install wdport[export]")
    here = jax.devices()[0].platform
    if not {"gpu": {"cuda", "rocm", "gpu"}}.get(here, {here}) & set(facts["platforms"]):
        platforms = ", ".join(facts["platforms"])
        fix = f"verify it on one of these, or export it with --platforms {platforms},{here}"
        raise MachineError(path, f"was exported for {platforms}, and this machine has {here}", fix)


def _plan(path: Path, network: Network | None, facts: Mapping[str, Any]) -> SamplingPlan | None:
    """The plan of a sampler, as the model's process makes it; None for other artifacts."""
    if facts["what"] == "network":
        return None
    if network is None:
        raise UsageError(path, f"is a {facts['what']}, and the model draws no samples", "give the model of this file")
    return sampler_plan(network, facts["sampler"]) if facts["what"] == "sampler" else None


def _trials(
    converted: Converted, side: ModelSide, facts: Mapping[str, Any], plan: SamplingPlan | None
) -> list[ProgramTrial]:
    if side.network is None or facts["what"] == "network":
        return network_trials(converted, side, facts)
    batches = (3, 1) if facts["batch"] is None else (facts["batch"],) * 2
    if plan is None:
        return denoiser_trials(converted, side.network, batches)
    return sampler_trials(side.network, plan, batches)


class ProgramComparison:
    """The errors of every output of every program, over its trials, and other differences."""

    def __init__(self, dtype: str) -> None:
        self._dtype, self._unit = dtype, UNIT_ROUNDOFF_16 if dtype == "bfloat16" else UNIT_ROUNDOFF
        self._pairs: dict[tuple[str, str], ErrorPair] = {}
        self._errors: dict[tuple[str, str], float] = {}
        self._facts: list[Finding] = []
        self._compared = self._expected = 0

    def add(self, trial: ProgramTrial, result: Result, expected: Sequence[Array], exact: Sequence[Array]) -> None:
        """Add what one call gave, what the model gives, and what it gives in float64."""
        self._expected += len(expected)
        self._compared += len(expected)
        # Only of this call: the others are still compared.
        if result.error:
            self._object(trial, f"does not run: {result.error}")
            return
        if len(result.outputs) != len(expected):
            self._object(trial, f"gives {len(result.outputs)} arrays, the model {len(expected)}")
            return
        for index, (candidate, reference, truth) in enumerate(zip(result.outputs, expected, exact, strict=True)):
            name = (
                trial.outputs[index] if index < len(trial.outputs) else f"output {index}" if len(expected) > 1 else ""
            )
            if candidate.shape != reference.shape:
                self._object(
                    trial, f"gives {name or 'an array'} of shape {candidate.shape}, the model {reference.shape}"
                )
            elif (kind := result.dtypes[index]) != (stated := trial.dtype or str(reference.dtype)):
                self._object(trial, f"gives {name or 'an array'} in {kind}, not in {stated}")
            # There is no error of the model to compare with: it is the truth itself.
            elif self._dtype == "float64":
                key = (trial.program, name)
                self._errors[key] = max(self._errors.get(key, 0.0), relative_l2(candidate, truth))
            else:
                pair = self._pairs.setdefault((trial.program, name), ErrorPair(unit=self._unit))
                pair.add(candidate, reference, truth)

    def _object(self, trial: ProgramTrial, what: str) -> None:
        self._facts.append(fact(f"{trial} {what}", trial.program))

    def _measures(self) -> list[Measure]:
        kind = "bfloat16" if self._dtype == "bfloat16" else "float32"
        errors = [measure(program, "error", error, "logic", _part(name))
                  for (program, name), error in self._errors.items()]  # fmt: skip
        return errors + [Measure(program, kind, max(pair.rms_ratio, pair.max_ratio), "numerics", NUMERICS, _part(name))
                         for (program, name), pair in self._pairs.items()]  # fmt: skip

    def ratios(self) -> dict[str, float]:
        """The largest error of every program."""
        ratios_by_program: dict[str, float] = {}
        for reading in self._measures():
            ratios_by_program[reading.subject] = max(ratios_by_program.get(reading.subject, 0.0), reading.size)
        return ratios_by_program

    def gate(self, stated: Sequence[Finding | None]) -> Gate:
        """Gate artifact (X), with other comparisons: a finding, or None for what agrees."""
        facts = [*self._facts, *(finding for finding in stated if finding is not None), *self._exacter()]
        compared, expected = self._compared + len(stated), self._expected + len(stated)
        return GATES["X"].gate(compared, expected if self._expected else 0, tuple(self._measures()), tuple(facts))

    def _exacter(self) -> list[Finding]:
        """Programs in 16 bits by their facts, whose errors are far smaller."""
        return [fact(f"{program}{_part(name)} does not compute in {self._dtype}: its errors are far smaller", program)
                for (program, name), pair in self._pairs.items() if self._dtype == "bfloat16"
                and pair.reference_square**0.5 > NUMERICS * pair.candidate_square**0.5]  # fmt: skip


def _part(name: str) -> str:
    return f", {name}" if name else ""


def _stated(
    converted: Converted,
    network: Network | None,
    plan: SamplingPlan | None,
    trials: Sequence[ProgramTrial],
    facts: Mapping[str, Any],
) -> list[Finding | None]:
    """What the artifact states of the model, against what the model states."""
    pairs: dict[str, tuple[object, object]] = {"model": (facts.get("model"), converted.config.to_dict())}
    if facts["what"] == "network":
        programs = facts["programs"]
        pairs |= {f"the outputs of {trial.program}": (_names(programs, trial.program), list(trial.outputs))
                  for trial in trials if trial.outputs}  # fmt: skip
    elif network is not None:
        pairs["target"] = facts.get("target"), network.process().target
        stated = condition_facts(network.about.condition)
        pairs |= {name: (facts.get(name), stated.get(name)) for name in ("classes", "condition")}
        pairs |= {name: (facts.get(name), size) for name, size in network.about.sizes.items()}
    if plan is not None:
        expected = {"name": plan.sampler, "eta": plan.eta, "steps": plan.steps.tolist(), "slots": plan.slots,
                    "spacing": plan.spacing}  # fmt: skip
        pairs |= {f"sampler, {name}": (facts["sampler"].get(name), value) for name, value in expected.items()}
    return [_unlike(name, *pair) for name, pair in pairs.items()]


def _names(programs: Mapping[str, Any], name: str) -> list[str]:
    return [output["name"] for output in programs[name]["outputs"]] if name in programs else []


def _unlike(name: str, stated: object, expected: object) -> Finding | None:
    # As JSON, since the facts have been through it: a tuple of the model is a list there.
    if json.dumps(stated, sort_keys=True) == json.dumps(expected, sort_keys=True):
        return None
    return fact(f"facts.json, {name}: {str(stated)[:60]} where the model has {str(expected)[:60]}", name)


def _members(
    facts: Mapping[str, Any], members: Mapping[str, str], called: set[str], model: str
) -> list[Finding | None]:
    """Programs that were not run, and what was compared earlier according to the facts."""
    programs = {name.removesuffix(PROGRAM) for name in members if name.endswith(PROGRAM)}
    problems = {True: "is not a program of the model", False: "is missing: the model has this program"}
    findings: list[Finding | None] = [
        fact(f"{name} {problems[name in programs]}", name) for name in sorted(programs ^ called)
    ]
    before = facts.get("compared")
    if before is None:
        return [*findings, None]
    if not isinstance(before, dict) or before.get("members") != members:
        return [*findings, fact("not the programs and weights that were verified when the file was written")]
    other = fact("verified with another model when the file was written")
    return [*findings, None if before.get("model") == model else other]
