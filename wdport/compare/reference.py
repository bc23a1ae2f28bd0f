"""The reference's side of a comparison: run the PyTorch model on one case of the battery.

There are two implementations: a model that runs here, wdport's or the user's own, and a recording (see
:mod:`wdport.parity.recorded_reference`), which needs no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
from numpy.typing import ArrayLike

from wdport.base.errors import MisfitError, error_of
from wdport.compare.activities import spent_on
from wdport.compare.calls import Case
from wdport.models.interface import Array
from wdport.recording.bias_shifts import bias_shifts, moved_biases
from wdport.recording.calls import cast
from wdport.recording.cases import SEEDS
from wdport.recording.code_constants import Ranges, compared_numbers, unreached, unreached_notes, with_numbers
from wdport.recording.conditioning import Conditioning, conditioning, float32_errors
from wdport.recording.errors import MODEL_ERRORS, Refusal, one_line
from wdport.recording.fitted_inputs import cases_of, checked_inputs, finite_case, mask_notes, with_ids, with_keys
from wdport.recording.float64 import lifted
from wdport.recording.inputs import Input
from wdport.recording.observation import Observation, observe
from wdport.recording.repeatability import FAST, FAST_PADDED, fast_path_error, is_repeatable, padded_error
from wdport.recording.runs import CaseSweep, module_names, sweep
from wdport.recording.stated_precision import stated_float64
from wdport.recording.torch_functions import highest_precision
from wdport.recording.unused_calls import unused_calls

if TYPE_CHECKING:
    import torch

MakeInputs = Callable[[int, int, float], Sequence[ArrayLike]]

TURNED: Final = SEEDS // 2
"""How much larger the seed of a batch of one is whose sizes are those of another in the opposite order."""


class Reference(Protocol):
    """The interface of a reference."""

    @property
    def framework(self) -> str:
        """The framework it runs in."""

    @property
    def modules(self) -> Mapping[str, torch.nn.Module]:
        """Its modules by dtype; empty for a recording."""

    @property
    def code(self) -> str:
        """The name of the user's own model; "" for wdport's implementation."""

    @property
    def recorded(self) -> bool:
        """Whether it is a recording, and does not run."""

    @property
    def names(self) -> Sequence[str]:
        """Its modules that a tap can name, including the parts of attention."""

    @property
    def shifts(self) -> Mapping[str, Array]:
        """The shifts of its random biases, float32 by name; the port's variables get the same."""

    @property
    def evaluating(self) -> bool:
        """Whether it runs in evaluation mode."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Versions and settings of its run, including "torch" and "torch_matmul"."""

    @property
    def findings(self) -> Sequence[str]:
        """Reasons why it is unfit as a reference, one sentence each."""

    @property
    def notes(self) -> Sequence[str]:
        """Notes for the reader, one sentence each."""

    def cases(self, battery: Sequence[Case]) -> Sequence[Case]:
        """Those of the cases that it can run; extreme values only where it stays finite."""

    def include(self, numbers: Sequence[float]) -> None:
        """Include numbers that the port's code compares values with in the inputs from now on."""

    def inputs(self, case: Case) -> tuple[Array, ...]:
        """The inputs of ``case``, floating ones in float64."""

    def use(self, random_biases: bool) -> None:
        """Use the converted weights, or those with random biases, from now on."""

    def observe(self, case: Case, taps: Collection[str]) -> Observation:
        """The observation of ``case``; in float32, the modules ``taps`` are isolated."""

    def conditioning(self, case: Case, dtype: str, taps: Collection[str]) -> Conditioning:
        """How far every tap moves in ``case`` when everything that it is given is perturbed by one rounding; for
        "float32", the largest errors of the reference itself in further runs. The modules ``taps`` are isolated."""

    def unused_calls(self, observation: Observation, names: Collection[str]) -> Sequence[str]:
        """The calls of these modules that no output of the network depends on; of a recording, none is known."""

    def sweep(self, names: Collection[str], times: Array) -> Mapping[str, CaseSweep]:
        """The outputs at ``times`` (n,) of these modules, which are fed one number per sample; modules that were not
        recorded are left out."""


class Live:
    """A PyTorch model that runs here: ``modules`` by dtype with equal weights, in evaluation mode.

    ``turned``, if given, are sizes of every input for a further batch of one, such as those of an image that is wide
    where that of ``drawn`` is high.
    """

    framework = "torch"
    recorded = False

    def __init__(
        self, modules: Mapping[str, torch.nn.Module], make_inputs: MakeInputs | None = None, notes: Sequence[str] = (),
        code: str = "", drawn: Sequence[Input] = (), turned: Sequence[Mapping[str, int]] = (),
        shifts: Mapping[str, Array] | None = None,
    ) -> None:  # fmt: skip
        self.modules, self._turned = modules, turned
        self.code = code
        self.names = module_names(modules["float64"])
        self.shifts = bias_shifts(modules["float32"]) if shifts is None else shifts
        self.environment: dict[str, str] = {}
        self.findings: list[str] = []
        self._notes = dict.fromkeys(notes)
        self.make_inputs, self.drawn = make_inputs, with_ids(drawn, modules["float64"])
        self._marks = ""
        self._compared: list[float] | None = None
        self._moved: ExitStack | None = None

    @property
    def evaluating(self) -> bool:
        return not any(part.training for module in self.modules.values() for part in module.modules())

    @property
    def notes(self) -> list[str]:
        return [*self._notes, *([self._marks] if self._marks else [])]

    def cases(self, battery: Sequence[Case]) -> Sequence[Case]:
        with translated(), spent_on("running PyTorch"):
            cases = cases_of(battery, self.make_inputs, self.drawn)
            if self._turned:
                pairs = ((case, replace(case, seed=case.seed + TURNED)) for case in cases)
                cases = [case for pair in pairs for case in (pair if pair[0].batch == 1 else pair[:1])]
            self.drawn = with_keys(self.drawn, self.modules["float64"], cases, self._draw)
            self._notes.update(dict.fromkeys(mask_notes(self.drawn)))
            if self.drawn and self.make_inputs is None:
                if self._compared is None:
                    self._compared = self._compare_numbers(cases)
                self.include(self._compared)
            return [finite_case(self.modules["float64"], case, self.inputs) for case in cases]

    def _compare_numbers(self, cases: Sequence[Case]) -> list[float]:
        """The numbers that the code compares values with in the first case, and a note on those that no size reaches,
        nor that of the longest case."""
        ranges: Ranges = {}
        double = self.modules["float64"]
        numbers = compared_numbers(double, self.inputs(cases[0]), ranges)
        for case in cases:
            if case.batch == 1 and unreached(ranges, self.drawn):
                compared_numbers(double, self.inputs(case), ranges)
        if self.code:
            self._notes = dict.fromkeys([*unreached_notes(ranges, self.drawn), *self._notes])
        return numbers

    def include(self, numbers: Sequence[float]) -> None:
        self.drawn = with_numbers(self.drawn, numbers)
        if marks := dict.fromkeys(mark for spec in self.drawn for mark in spec.marks):
            values = " and ".join(f"{mark:g}" for mark in marks)
            them = "them" if len(marks) > 1 else "it"
            self._marks = f"among the inputs are exactly {values}, since the code compares values with {them}"

    def inputs(self, case: Case) -> tuple[Array, ...]:
        return self._draw(case, self.drawn)

    def _draw(self, case: Case, drawn: Sequence[Input]) -> tuple[Array, ...]:
        if self._turned and case.batch == 1 and case.seed % SEEDS >= TURNED:
            drawn = tuple(replace(spec, alone=sizes) for spec, sizes in zip(drawn, self._turned, strict=True))
        return checked_inputs(self.make_inputs, case, "the reference", drawn)

    def use(self, random_biases: bool) -> None:
        if random_biases and self._moved is None:
            self._moved = ExitStack()
            self._moved.enter_context(moved_biases(self.modules, self.shifts))
        elif not random_biases and self._moved is not None:
            self._moved.close()
            self._moved = None

    def observe(self, case: Case, taps: Collection[str]) -> Observation:
        self.use(case.random_biases)
        with translated(), spent_on("running PyTorch"), highest_precision() as precision:
            inputs = self.inputs(case)
            try:
                observation = observe(
                    self.modules, case, inputs, taps=taps, note=lambda text: self._notes.update({text: None})
                )
                # Once, on the first case; of a random reference, nothing else can be said. PyTorch's fused attention
                # path may compute something else than its layers one by one.
                repeats = bool(self.environment) or is_repeatable(
                    self.modules["float64"], observation, self.code or "the reference"
                )
                fast_error = 0.0 if self.environment else fast_path_error(self.modules["float32"], observation)
                if not self.environment and (error := padded_error(self.modules["float32"], observation)):
                    self._notes[FAST_PADDED.format(error)] = None
            except MODEL_ERRORS as error:
                # An error of a reference that comes with wdport is a bug, and keeps its traceback.
                if not self.code:
                    raise
                what = f"running it raises {one_line(error)}"
                raise MisfitError(self.code, what, "correct the module, or its inputs") from error
            if self.code and not case.extremes and any(np.isnan(output).any() for output in observation.outputs
                                                       if output.dtype.kind == "f"):  # fmt: skip
                fix = "state inputs for which it is finite, such as `x: b 8, from 1 to 100`"
                raise MisfitError(self.code, f"its outputs have NaN for the inputs of {case.describe()}", fix)
            if not self.environment:
                import torch

                self.environment = {"torch": str(torch.__version__), "torch_matmul": precision}
                if not repeats:
                    self.findings.append("the reference does not repeat itself bit for bit")
                if fast_error:
                    self.findings.append(f"the reference {FAST} {fast_error:.1e}")
        return observation

    def conditioning(self, case: Case, dtype: str, taps: Collection[str]) -> Conditioning:
        self.use(case.random_biases)
        with translated(), spent_on("running PyTorch"):
            inputs = self.inputs(case)
            if dtype == "float32":
                if stated_float64(self.modules["float32"], cast(inputs, np.float32)):
                    self._notes["the reference computes in float64, also where the network is in float32"] = None
                return float32_errors(self.modules, case, inputs, taps)
            return conditioning(self.modules["float64"], case, inputs, taps)

    def unused_calls(self, observation: Observation, names: Collection[str]) -> Sequence[str]:
        with translated(), spent_on("running PyTorch"), highest_precision(), lifted():
            inputs, outputs, calls = observation.inputs, observation.outputs, observation.calls
            return unused_calls(self.modules["float64"], inputs, outputs, calls, names)

    def sweep(self, names: Collection[str], times: Array) -> Mapping[str, CaseSweep]:
        with translated():
            return sweep(self.modules, names, times)


@contextmanager
def translated() -> Iterator[None]:
    """Convert the recorder's refusals to errors of wdport."""
    try:
        yield
    except Refusal as refusal:
        raise error_of(refusal.exit_code, refusal.where, refusal.what, refusal.fix) from refusal
