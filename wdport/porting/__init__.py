"""What a porter needs before there is a mapping table, or a Keras model: a PyTorch model laid open."""
