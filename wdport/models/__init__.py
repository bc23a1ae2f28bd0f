"""Models as both sides see them: the interface of a family, and Keras's models, their variables and inputs."""
