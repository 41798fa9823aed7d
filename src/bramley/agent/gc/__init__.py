"""Garbage collection of the VMs and images that the ledger records."""
