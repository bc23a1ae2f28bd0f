"""The outline of a PyTorch model: every layer and every function in call order, with its counterpart in Keras.

The model is run (:mod:`.trace`) with two batch sizes (:mod:`.batch`); the axes of all tensors are followed through it
(:mod:`.axes`, :mod:`.flow`); every call becomes a step (:mod:`.steps`) with the Keras layer that computes the same
(:mod:`.counterparts`) and the defaults that differ (:mod:`.keras_calls`).
"""
