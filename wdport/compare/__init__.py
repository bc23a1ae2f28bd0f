"""Compare two models: align their layers, record inputs and outputs, and measure errors."""
