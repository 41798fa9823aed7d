"""What host and guest tell each other through shared folders."""
