"""Count the held-out digits that the Keras model reads: ``python check.py``, in the folder of ``cnn.keras``.

This is how a project uses the model: it needs Keras and the written source, and neither PyTorch nor wdport.
"""

from __future__ import annotations

import os
import sys

os.environ.setdefault("KERAS_BACKEND", "jax")
sys.path.insert(0, "")  # cnn_keras.py is in the current folder, and this script in another

import cnn_keras  # noqa: F401  (the classes that cnn.keras names)
import keras
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

digits = load_digits()
images = digits.images[..., None].astype("float32") / 16.0
_, held_out, _, wanted = train_test_split(images, digits.target, random_state=0)
model = keras.saving.load_model("cnn.keras")
right = int((model.predict(held_out, verbose=0).argmax(1) == wanted).sum())
print(f"Keras: {right} of {len(wanted)} held-out digits are right ({right / len(wanted):.1%})")  # noqa: T201
