"""The scheduler classes of diffusers that are read, each with all of its fields.

A class is listed if its network is trained as DDPM's is: it sees signal * data + noise * noise at a whole step, and the
betas determine both factors. Flows, consistency models and diffusions over noise levels are refused by name.

Source: diffusers 0.42.1; defaults and fields are compared with the library's classes by tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from wdport.errors import did_you_mean, printable

Fields = Mapping[str, Any]
"""The fields of a class, with the library's defaults."""

_BETAS: Final[Fields] = {"num_train_timesteps": 1000, "beta_start": 1e-4, "beta_end": 0.02, "beta_schedule": "linear",
                         "trained_betas": None, "prediction_type": "epsilon"}  # fmt: skip
_SPACING: Final[Fields] = {"timestep_spacing": "linspace", "steps_offset": 0}
_CLIPPING: Final[Fields] = {"clip_sample": True, "clip_sample_range": 1.0}
_THRESHOLD: Final[Fields] = {"thresholding": False, "dynamic_thresholding_ratio": 0.995, "sample_max_value": 1.0}
_RESCALING: Final[Fields] = {"rescale_betas_zero_snr": False}
_SIGMAS: Final[Fields] = {"use_karras_sigmas": False, "use_exponential_sigmas": False, "use_beta_sigmas": False}
_FLOW: Final[Fields] = {"use_flow_sigmas": False, "flow_shift": 1.0}
_SHIFT: Final[Fields] = {"use_dynamic_shifting": False, "time_shift_type": "exponential"}
_END: Final[Fields] = {"final_sigmas_type": "zero"}
_STABLE: Final[Fields] = {"beta_start": 0.00085, "beta_end": 0.012}

_ANCESTRAL: Final[Fields] = {**_BETAS, **_SPACING, **_CLIPPING, **_THRESHOLD, **_RESCALING,
                             "timestep_spacing": "leading"}  # fmt: skip
_DDPM: Final[Fields] = {**_ANCESTRAL, "variance_type": "fixed_small"}
_DDIM: Final[Fields] = {**_ANCESTRAL, "set_alpha_to_one": True}
_SOLVER: Final[Fields] = {**_BETAS, **_THRESHOLD, **_SIGMAS, **_FLOW, **_SHIFT, "solver_order": 2,
                          "solver_type": "midpoint", "lower_order_final": True}  # fmt: skip
_DPM: Final[Fields] = {**_SOLVER, **_END, "algorithm_type": "dpmsolver++", "lambda_min_clipped": float("-inf"),
                       "variance_type": None}  # fmt: skip

OWN_STEPS: Final = ("DDPMScheduler", "DDPMParallelScheduler", "DDIMScheduler", "DDIMParallelScheduler")
"""Classes whose steps the samplers "ddpm" and "ddim" take. Of the others the diffusion is read, and not their steps."""

CLASSES: Final[Mapping[str, Fields]] = {
    "DDPMScheduler": _DDPM,
    "DDPMParallelScheduler": _DDPM,
    "DDIMScheduler": _DDIM,
    "DDIMParallelScheduler": _DDIM,
    "PNDMScheduler": {**_BETAS, **_SPACING, "timestep_spacing": "leading", "skip_prk_steps": False,
                      "set_alpha_to_one": False},
    "LMSDiscreteScheduler": {**_BETAS, **_SPACING, **_SIGMAS},
    "EulerDiscreteScheduler": {**_BETAS, **_SPACING, **_SIGMAS, **_END, **_RESCALING, "interpolation_type": "linear",
                               "sigma_min": None, "sigma_max": None, "timestep_type": "discrete"},
    "EulerAncestralDiscreteScheduler": {**_BETAS, **_SPACING, **_RESCALING},
    "HeunDiscreteScheduler": {**_BETAS, **_STABLE, **_SPACING, **_SIGMAS, **_CLIPPING, "clip_sample": False},
    "KDPM2DiscreteScheduler": {**_BETAS, **_STABLE, **_SPACING, **_SIGMAS},
    "KDPM2AncestralDiscreteScheduler": {**_BETAS, **_STABLE, **_SPACING, **_SIGMAS},
    "DPMSolverMultistepScheduler": {**_DPM, **_SPACING, **_RESCALING, "euler_at_final": False, "use_lu_lambdas": False},
    "DPMSolverSinglestepScheduler": {**_DPM, "lower_order_final": False},
    "DEISMultistepScheduler": {**_SOLVER, **_SPACING, "algorithm_type": "deis", "solver_type": "logrho"},
    "UniPCMultistepScheduler": {**_SOLVER, **_SPACING, **_END, **_RESCALING, "solver_type": "bh2", "predict_x0": True,
                                "disable_corrector": [], "solver_p": None, "sigma_min": None, "sigma_max": None,
                                "shift_terminal": None},
}  # fmt: skip
"""The classes that are read."""

OLDER: Final[Fields] = {"tensor_format": "pt", "timestep_values": None, "predict_epsilon": True}
"""Fields that any class had in older releases."""

IMPLEMENTED: Final[Mapping[str, tuple[object, ...]]] = {
    "thresholding": (False, None),
    "rescale_betas_zero_snr": (False, None),
    "use_flow_sigmas": (False, None),
    "use_dynamic_shifting": (False, None),
    "timestep_type": ("discrete",),
    "shift_terminal": (None,),
    "timestep_values": (None,),
    "predict_epsilon": (True, None),
}
"""Fields that change what a network is trained for, and their supported values. Others are read by
:class:`wdport.diffusion.scheduler.Scheduler`, or concern the class's own steps alone."""

_KNOWN: Final = frozenset(OLDER).union(*CLASSES.values())
"""Fields of any class: the library keeps those of another class when it converts a configuration."""


def scheduler_fields(document: Mapping[str, object]) -> dict[str, object]:
    """The fields of a ``scheduler_config.json`` with its class's defaults; raises ``ValueError`` for an unknown class,
    an unknown field and an unsupported value. Names that begin with ``_`` are the library's own notes."""
    kind = document.get("_class_name")
    if not isinstance(kind, str) or kind not in CLASSES:
        named = "" if kind is None else f" {printable(repr(kind), 60)} is not supported"
        raise ValueError(f"_class_name{named or ' is missing'}")
    stated = {name: value for name, value in document.items() if not name.startswith("_")}
    if unknown := [name for name in stated if name not in _KNOWN]:
        meant = did_you_mean(unknown[0], CLASSES[kind])
        raise ValueError(f"unknown field {printable(repr(unknown[0]), 60)} of {kind}{meant and f'; {meant}'}")
    for name, supported in IMPLEMENTED.items():
        if (value := stated.get(name, supported[0])) not in supported:
            raise ValueError(f"{name} is not supported with {printable(repr(value), 60)}, as {kind} has it here")
    if "clip_sample" not in CLASSES[kind] and stated.get("clip_sample", False) is not False:
        raise ValueError(f"clip_sample is set, which {kind} does not have")
    values = {**CLASSES[kind], **stated}
    if values.get("variance_type") is None:  # of solvers, which add none; for DDPM the library takes its default
        values.pop("variance_type", None)
    return values
