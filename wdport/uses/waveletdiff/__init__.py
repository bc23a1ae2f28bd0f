"""WaveletDiff (arXiv 2510.11839): configuration, Keras port, PyTorch reference, tables of constants."""
