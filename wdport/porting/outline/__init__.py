"""The outline of a PyTorch model: every layer and every function in call order, with its counterpart in Keras.

The model is run with two batch sizes (:mod:`.trace`); the axes of all tensors are followed through it (:mod:`.axes`,
:mod:`.flow`); every call becomes a step (:mod:`.steps`) with the Keras layer that computes the same and the defaults
that differ (:mod:`.counterparts`).
"""
