"""Wavelets: so far the arithmetic of lengths and the public code's automatic choices."""
