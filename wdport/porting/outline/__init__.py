"""The outline of a PyTorch model: every layer and every function in call order, with its counterpart in Keras.

The model is traced with two batch sizes (:mod:`wdport.porting.tracing`); the axes of all tensors are followed through
the graph (:mod:`.axes`, :mod:`.flow`); every node becomes a step (:mod:`.steps`) with the Keras layer that computes the
same and the defaults that differ (:mod:`.counterparts`).
"""
