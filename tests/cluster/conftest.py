"""What tests of a real cluster share with those of processes."""

from tests.process.conftest import threads

__all__ = ["threads"]
