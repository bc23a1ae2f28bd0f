"""What a layer was given and what it gave, and the one idea behind every isolated comparison.

A network whose every tapped layer is *answered for* by recorded calls falls apart into its edges: each
layer computes from recorded inputs, and what is handed on is the recorded output. One run of such a
network tells, for every tap, what the code around it would have fed it and what it makes of the right
input; no error travels further than one edge, so what is off is off where the fault is.

The inputs of a run decide what can be seen: three seeds; unit and fifty-fold scale; batches of one and of four;
another energy in every channel; weights as converted and with random biases. Inputs of zeros or ones would hide
known faults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wdport.model import Array
from wdport.recorder import CASES as CASES
from wdport.recorder import Call as Call
from wdport.recorder import Calls as Calls
from wdport.recorder import Case as Case
from wdport.recorder import Outputs as Outputs
from wdport.recorder import call_name as call_name
from wdport.recorder import cast as cast
from wdport.recorder import layer_of as layer_of
from wdport.recorder import leaves as leaves


@dataclass(frozen=True)
class Expected:
    """A call of the reference in the port's layout: its inputs by their place among the ``count`` that the port's call
    has, and its outputs."""

    inputs: Mapping[int, Array]
    count: int
    outputs: Outputs
    caller: str = ""

    @property
    def given(self) -> list[Array]:
        """The inputs in order."""
        return [self.inputs[at] for at in sorted(self.inputs)]
