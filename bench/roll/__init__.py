"""Three ways to roll an image over a large fleet with live jobs, side by side under virtual time."""
