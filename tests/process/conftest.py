"""What tests of processes share."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

# More at a time would only keep each other from the processor.
AT_A_TIME = 3


@pytest.fixture(scope="session")
def threads() -> Iterator[ThreadPoolExecutor]:
    """Lend threads to tests that run beside each other."""
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        yield pool
