"""The published JSON Schemas of wdport's formats, made of the types that declare them.

No other package of wdport imports this one. ``make schemas`` uses it to write ``docs/schemas`` and the tables in
``docs/formats``, and a test checks that both are up to date.
"""
