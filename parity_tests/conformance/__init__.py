"""Conformance: a pair of a PyTorch layer and a Keras layer for every kind and every hyper-parameter that differs.

``python -m parity_tests.conformance`` runs all pairs with the releases that are installed and prints a table. A pair
passes where both layers compute the same in float64 and each of its mutants, a layer with one hyper-parameter wrong,
does not.
"""
