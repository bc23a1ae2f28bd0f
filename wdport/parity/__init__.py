"""Parity: a checkpoint and its port, both running, to a verdict on whether they compute the same.

:mod:`wdport.parity.verify` is the way in.
"""
