"""Training as in the checkpoint's training script, as pure functions of arrays: loss, AdamW, learning rates."""
