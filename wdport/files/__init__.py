"""Writing converted models: atomically, re-read and compared, with a manifest."""
