"""The verbs that use converted models: one file per verb."""
