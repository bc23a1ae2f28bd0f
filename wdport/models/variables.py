"""Filling a Keras model's variables from arrays of the host."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from wdport.models.family import Array


def set_variable(variable: Any, array: Array) -> None:
    """Give a Keras variable an array's values, in the variable's own dtype.

    The array must not change afterwards: on a CPU the variable may keep the very memory that it is given.
    Handing the array itself to Keras compiles a program for every new shape (JAX 0.10), 30 ms each.
    """
    variable.assign(jax.device_put(np.asarray(array, dtype=variable.dtype)))
