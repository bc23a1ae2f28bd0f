"""The known sampler bugs that a port of a process can have."""

from __future__ import annotations

from parity_tests.faults.samplers.diffusion import SAMPLER_FAULTS
from parity_tests.faults.samplers.flow import FLOW_FAULTS
from parity_tests.faults.samplers.scheduler import SCHEDULER_FAULTS
from wdport.diffusion.faults import SamplerFault
from wdport.diffusion.flow import Flow
from wdport.diffusion.process import Process
from wdport.diffusion.scheduler import Scheduled


def faults_of(process: Process) -> tuple[SamplerFault, ...]:
    """The known bugs of a scheduler, of a flow, or of a checkpoint's own diffusion."""
    if isinstance(process, Scheduled):
        known = SCHEDULER_FAULTS
    elif isinstance(process, Flow):
        known = FLOW_FAULTS
    else:
        known = SAMPLER_FAULTS
    return tuple(fault for fault in known if fault.applies(process))
