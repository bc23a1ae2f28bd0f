"""Compare whole outputs on fresh inputs and fresh weights, with the port alone in its own process.

:func:`wdport.parity.fresh.gate.fresh_verdict` is the entry point: the process that calls it runs neither model.
"""
