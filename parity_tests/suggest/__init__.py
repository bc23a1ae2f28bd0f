"""Outside examination of ``wdport map suggest``: pairs of models with tables by hand, and faults in twins."""
