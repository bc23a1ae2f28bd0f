"""Training of converted models: their optimizers resumed, and their objectives for ``fit``."""
