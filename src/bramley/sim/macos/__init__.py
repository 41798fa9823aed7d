"""The operating system of a simulated Mac: its files, users, services and programs, as one model with two implementations."""
