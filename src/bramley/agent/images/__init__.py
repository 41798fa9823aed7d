"""Images on this host: pulls, golden bases, staging."""
