"""Structural schemas of custom resources: compiled once into closures that default, prune and validate."""
