"""Diffusion: noise schedules, samplers as plans, and the one scan that runs them."""
