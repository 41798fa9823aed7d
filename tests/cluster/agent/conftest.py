"""The control planes of `tests/process/agent_life`."""

from tests.process.agent_life.conftest import server

__all__ = ["server"]
