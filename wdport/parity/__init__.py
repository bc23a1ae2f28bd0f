"""Parity: run a checkpoint and its port and decide whether they compute the same.

The entry point is :mod:`wdport.parity.verify`.
"""
