"""Test the comparison itself: inject known faults into correct ports one at a time, and run unchanged correct ports."""
