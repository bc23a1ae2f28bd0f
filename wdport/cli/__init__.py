"""The command line: a file per verb. Only this folder prints or exits."""
