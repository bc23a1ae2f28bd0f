"""What every room stands on: errors, limits, the declarations of fields and options, and settings of the machine."""
