"""The machine controller with many machines: what it requests at rest, and what a roll of a whole fleet over SSH costs it."""
