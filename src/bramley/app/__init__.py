"""Composition: the objects of one process, built once and run together in a TaskGroup."""
