"""Faults as edits of the source of every family, sampler, program and optimizer, each tried by `wdport verify`.

They were written from the ports and the descriptions of the models, without sight of the gates, the known faults and
the tests. An edit names its ``file``, a definition ``in`` it, and an ``old`` and a ``new`` part of the definition's
code; see :mod:`parity_tests.edits.binding`. ``python -m parity_tests.edits`` applies one at a time to a copy of the
package and runs `verify` there, by default and then with everything that it offers.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "jax")  # before tests that import Keras
MODELS = [str(Path(__file__).parents[2] / "examples" / "points"), str(Path(__file__).with_name("models"))]
os.environ["PYTHONPATH"] = os.pathsep.join(MODELS)  # of the processes that edits are tried in
sys.path += MODELS
