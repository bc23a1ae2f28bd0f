"""EuroBertForMaskedLM of transformers: a bidirectional transformer for masked tokens. See docs/masked_lm.md."""
