"""A simulated Mac behind a real SSH server: shell runs for real in the Mac's own root, and its programs are those of the model."""
