"""The writer: Keras source from a lowered graph, a class for every class of PyTorch, with the author's names.

:mod:`.scopes` gives every step to the call of a module that it belongs to and finds what goes in and out, :mod:`.names`
reads the author's names from the source, :mod:`.body` makes statements, :mod:`.classes` groups instances into classes,
and :mod:`.write` prints the module and the rows of its table.
"""
