"""The programs of a simulated Mac, a few to a file."""
