"""The embedded API's client for the agents on nodes: their addresses, its credentials, and the usage that they report."""
