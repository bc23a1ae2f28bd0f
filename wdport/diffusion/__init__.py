"""Diffusion: the noise schedules (the samplers follow)."""
