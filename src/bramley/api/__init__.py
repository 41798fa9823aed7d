"""Typed Kubernetes objects: only the fields we use, the names of the contract, and the CRDs generated from our kinds.

Nothing here talks to anybody. A partial Struct is never sent back as a whole object: writes are patches.
"""
