"""Certificates, the server's TLS identity, and the private files that hold keys and tokens.

Nothing here knows HTTP, users or the store.
"""
