"""The command line: one file per verb. Only this package and wdport.uses.cli print or exit."""
