"""Export a model to one file that runs without wdport and Keras (see `loader.py`)."""
