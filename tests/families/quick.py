"""What is quicker in tests: `verify` without samplers and all inputs, ports with random weights, compiling."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jax
import numpy as np

from wdport.base.jax_settings import fast_compile
from wdport.compare.calls import CASES
from wdport.parity import verify
from wdport.parity.run_gates import Setup
from wdport.parity.verdict_api import Verdict
from wdport.parity.verify_options import Pair


@contextmanager
def few_cases(count: int = 1) -> Iterator[None]:
    """Makes `verify` compare the first of its cases only."""
    with patch.object(verify, "battery", lambda *_: CASES[:count]):
        yield


def jitted(function: Callable[..., Any]) -> Any:
    """``function`` compiled for a run or two."""
    return jax.jit(function, compiler_options=fast_compile())


def network_verdict(checkpoint: Path | str, converted: Path | str, **options: Any) -> Verdict:
    """The verdict on the network alone, of one case, without probable causes."""
    with few_cases():
        return verify.compare_files(Pair(converted, checkpoint, **options), setup=Setup(network=True, causes=False))


def filled(family: Any, config: Any, dtype: str = "float32") -> Any:
    """The port with random weights; Keras would compile a program for every shape to draw them."""
    model, rng = family.build(config, dtype), np.random.default_rng(0)
    model.set_weights([0.3 * rng.standard_normal(variable.shape) for variable in model.weights])
    return model
