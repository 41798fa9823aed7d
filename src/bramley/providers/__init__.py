"""Providers of rented Macs: the Protocol `provider.HostProvider`, what all of them share, and Scaleway.

Nothing here reads the Kubernetes API: which machine may have which host is decided by the caller.
"""
