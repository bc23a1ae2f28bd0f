"""Exporting: a diffusion model in, one file out that runs where neither wdport nor Keras is (see `loader.py`)."""
