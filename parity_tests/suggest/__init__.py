"""Outside examination of ``wdport map suggest``: pairs of models with tables by hand, and faults in twins.

``python -m parity_tests.suggest`` scores the tables that are suggested for every pair of :mod:`.corpus`, with the
PyTorch model's names honest, misleading and meaningless; ``--truths`` proves the tables by hand instead.
``python -m parity_tests.suggest.faults`` asks about the edited twins of :mod:`.seeded`; ``--sites`` proves where the
faults sit. Both end with 1 where something is not as it has to be.

``nets`` holds the PyTorch modules, ``twins`` the Keras models as a porter would write them, ``truths`` the tables.
Nothing here looks at how a table is found: only at the command line, the table and the two models.
"""
