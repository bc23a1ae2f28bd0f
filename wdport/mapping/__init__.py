"""Mapping tables: rules, kinds of layers, rows, and the plan that they make of a checkpoint."""
