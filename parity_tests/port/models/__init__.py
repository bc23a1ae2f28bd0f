"""Functions that build the models of the corpus, one module for a library."""
