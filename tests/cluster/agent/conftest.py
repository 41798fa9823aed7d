"""The same control planes as for the agents that are killed, seen through kubectl."""

from tests.process.agent_life.conftest import server

__all__ = ["server"]
