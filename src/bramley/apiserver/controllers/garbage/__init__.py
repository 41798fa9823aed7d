"""Garbage collection by owner references: an object with owners is deleted when the last of them is gone.

`graph_builder` keeps the graph of owners and dependents by one informer per kind; `collector` decides about single objects,
and reads them again from the API before it changes anything.
"""
