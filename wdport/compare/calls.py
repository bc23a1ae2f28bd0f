"""Calls of layers with their inputs and outputs, and the principle of isolated comparisons.

Isolating a tapped layer (activation patching) means that it computes from recorded inputs, and that the rest of the
network gets the recorded output in place of its own. The recorded call is the layer's *answer*. One run with every
tapped layer isolated shows for every tap the inputs that the surrounding code would have fed it and its output for the
right inputs. No error propagates beyond the next tap, so an error appears where the fault is.

The inputs of a run decide which faults can be found: four seeds; unit and fifty-fold scale; batches of one and of
four; another energy in every channel; weights as converted and with random biases. Inputs of zeros or ones alone would
hide known faults: they are samples of one batch, along with large and missing values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wdport.models.interface import Array
from wdport.recording.calls import Call as Call
from wdport.recording.calls import Calls as Calls
from wdport.recording.calls import Outputs as Outputs
from wdport.recording.calls import call_name as call_name
from wdport.recording.calls import cast as cast
from wdport.recording.calls import layer_of as layer_of
from wdport.recording.cases import CASES as CASES
from wdport.recording.cases import Case as Case
from wdport.recording.nested import leaves as leaves
from wdport.recording.observation import answers_of as answers_of


@dataclass(frozen=True)
class ExpectedCall:
    """A call of the reference in the port's layout: its inputs by their position among the ``count`` inputs of the
    port's call, and its outputs. ``window`` is the part of each output that the reference has, if the port crops the
    rest in a following layer."""

    inputs: Mapping[int, Array]
    count: int
    outputs: Outputs
    caller: str = ""
    window: tuple[slice, ...] = ()

    def cropped(self, outputs: Sequence[Array]) -> list[Array]:
        """The part of the port's outputs that the reference has."""
        return [array[self.window] if len(self.window) == array.ndim else array for array in outputs]

    @property
    def given(self) -> list[Array]:
        """The inputs in order."""
        return [self.inputs[index] for index in sorted(self.inputs)]


Answers = Mapping[str, ExpectedCall]
"""Expected calls, by call of the port."""
