"""The ASGI application: routing of requests, limits, audit log, metrics, probes and discovery documents.

The top of the API server: it imports every other package, and none of them imports it.
"""
