"""PyTorch modules with random weights, each with names that are honest, misleading and meaningless."""
