"""Parity: a checkpoint and its port, both running, to a verdict on whether they compute the same."""

from wdport.parity.verdict import Verdict as Verdict
from wdport.parity.verify import verify as verify
