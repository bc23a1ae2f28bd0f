"""What a model family is: its roles, the registry, and the user's own model; the shipped ones are in wdport.uses."""
