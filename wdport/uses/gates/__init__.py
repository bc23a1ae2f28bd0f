"""The gates of the verbs that use converted models, which `verify` runs for the families that offer them."""
