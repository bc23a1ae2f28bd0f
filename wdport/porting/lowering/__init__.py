"""The lowering of a graph: every node of PyTorch's run as layers, functions, operators and indices of Keras, with their
operands, in Keras's layout.

:mod:`.keras_graph` has the data, :mod:`.graph_lowering` goes through the nodes and keeps the layout of every tensor,
and :mod:`.lower` has the rules that lower one node each, from :mod:`.layers` and a module for each kind of function.
:mod:`.interpreter` runs the result.
"""
