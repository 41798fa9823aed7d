"""Fixtures that tests of processes share."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

# More would only compete for the processor.
AT_A_TIME = 3


@pytest.fixture(scope="session")
def threads() -> Iterator[ThreadPoolExecutor]:
    """Yield the threads of tests that run concurrently."""
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        yield pool
