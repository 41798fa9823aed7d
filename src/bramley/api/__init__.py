"""Typed Kubernetes objects: only the fields we use, the names of the contract, and the CRDs generated from our kinds.

Nothing here does I/O. The Structs are partial and are never sent back as a whole object: writes are patches.
"""
