"""What differs between macOS and Linux."""
