"""Garbage collection of what the ledger says we made."""
