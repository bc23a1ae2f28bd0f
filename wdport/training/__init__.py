"""Training of converted models: their optimisers resumed, and their objectives for ``fit``."""
