"""Garbage collection by owner references: what has owners goes when the last of them is gone.

`graph` remembers who owns whom, `deciding` says what follows for one object, `following` keeps the graph true for every kind
that the API serves, and `collector` asks the API again before it does anything.
"""
