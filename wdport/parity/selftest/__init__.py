"""What this harness can find: known faults put into correct ports one at a time, and correct ports left alone."""
