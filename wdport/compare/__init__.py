"""Two models side by side: which layers belong together, what they were fed and made, and how far that is apart."""
