"""Benchmarks against the rivals of the field, each in one run: `python -m bench NAME`. None of it ships in the package."""
