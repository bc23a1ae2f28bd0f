"""Outside examination of ``wdport map suggest``: pairs of models with tables by hand, and faults in twins.

``python -m parity_tests.suggest`` scores the tables that are suggested for every pair of :mod:`.corpus`, with the
PyTorch model's names honest, misleading and meaningless. ``python -m parity_tests.suggest.faults`` asks about the
edited twins of :mod:`.seeded`. Both end with 1 where something is not as it has to be. :mod:`.test_bench` proves the
tables by hand and the places of the faults.

``nets`` holds the PyTorch modules, ``twins`` the Keras models as a porter would write them, ``truths`` the tables.
Nothing here looks at how a table is found: only at the command line, the table and the two models.
"""
