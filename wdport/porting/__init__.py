"""Tools for porting before there is a mapping table: the outline of a PyTorch model, and a suggested table."""
