"""Public PyTorch models that ``wdport port`` is measured on."""
