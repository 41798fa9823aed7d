"""The embedded Kubernetes API: a real API server over SQLite in one process, for one machine, demos and tests.

`store` keeps the objects, the rest speaks HTTP about them. `controllers` are clients of it like any others: the server imports
none of them, and they nothing of the server.
"""
