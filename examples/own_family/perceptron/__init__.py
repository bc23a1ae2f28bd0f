"""Multilayer perceptrons, a family of models for wdport."""
