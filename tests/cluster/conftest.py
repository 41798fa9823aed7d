"""Fixtures that tests of a real cluster share with tests of processes."""

from tests.process.conftest import threads

__all__ = ["threads"]
