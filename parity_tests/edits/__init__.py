"""Faults as edits of the source of every family, sampler, program and optimizer, each tried by `wdport verify`.

They were written from the ports and the descriptions of the models, without sight of the gates, the known faults and
the tests. ``python -m parity_tests.edits`` applies one at a time to a copy of the package and runs `verify` there, by
default and then with everything that it offers.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "jax")  # before tests that import Keras
POINTS = str(Path(__file__).parents[2] / "examples" / "points")
os.environ["PYTHONPATH"] = POINTS  # of the processes that edits are tried in; they find the example's modules there
sys.path.append(POINTS)
