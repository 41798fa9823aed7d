"""A simulated Mac behind a real SSH server: shell runs for real in the Mac's own root, its programs answer from the model."""
