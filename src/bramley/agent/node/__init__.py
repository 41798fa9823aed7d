"""The Node of this host: registration, heartbeat, conditions."""
