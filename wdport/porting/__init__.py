"""What a porter needs before there is a mapping table: a PyTorch model laid open, and the table of two models."""
