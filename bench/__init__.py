"""Benchmarks against comparable projects: `python -m bench NAME`. Not part of the package."""
