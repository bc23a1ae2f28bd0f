"""Training as the checkpoint's own script does it, as pure functions of arrays: loss, AdamW, learning rates."""
