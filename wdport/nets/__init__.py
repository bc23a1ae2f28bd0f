"""Layers of networks for images and for tokens: Keras layers, channels last, exact in float64.

Keras's own layers are used where they fit. Its `GroupNormalization`, `ops.mean`, `ops.sin` and `ops.cos` compute in
float32 inside a float64 model, and it has no convolution with PyTorch's padding at a stride of two.
"""

import keras  # noqa: F401 -- before the modules, which the ports that this imports import
