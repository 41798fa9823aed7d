"""The embedded Kubernetes API: a real API server over SQLite in one process, for one machine, demos and tests.

`store` keeps the objects, the rest speaks HTTP about them. No controller lives here, and nothing below knows of it.
"""
