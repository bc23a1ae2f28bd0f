"""Write files, each completely or not at all, and read converted models."""
