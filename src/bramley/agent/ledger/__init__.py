"""What the agent made on this host, on disk."""
