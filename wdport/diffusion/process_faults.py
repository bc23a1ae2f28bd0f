"""The known sampler bugs that a port of a process can have."""

from __future__ import annotations

from wdport.diffusion.faults import SAMPLER_FAULTS, SamplerFault
from wdport.diffusion.flow import Flow
from wdport.diffusion.flow_faults import FLOW_FAULTS
from wdport.diffusion.process import Process
from wdport.diffusion.scheduler import Scheduled
from wdport.diffusion.scheduler_faults import SCHEDULER_FAULTS


def faults_of(process: Process) -> tuple[SamplerFault, ...]:
    """The known bugs of a scheduler, of a flow, or of a checkpoint's own diffusion."""
    if isinstance(process, Scheduled):
        known = SCHEDULER_FAULTS
    elif isinstance(process, Flow):
        known = FLOW_FAULTS
    else:
        known = SAMPLER_FAULTS
    return tuple(fault for fault in known if fault.applies(process))
