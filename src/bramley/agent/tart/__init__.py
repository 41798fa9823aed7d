"""Driving the `tart` command."""
