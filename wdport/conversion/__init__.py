"""Convert a checkpoint: read, plan, apply, write, load; and the way back to the checkpoint's tensors."""
