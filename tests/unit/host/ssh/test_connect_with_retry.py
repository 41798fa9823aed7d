"""Connection attempts: an unreachable Mac is retried, a permanent error is raised at once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from bramley.base import errors
from bramley.host.ssh import connection
from tests import virtual_time

CONNECT_TIMEOUT = timedelta(minutes=5)


class FakeConnect:
    """Returns or raises its results in order; the last one repeats."""

    def __init__(self, *answers: BaseException | str) -> None:
        self.calls: list[float] = []
        self._answers: Iterator[BaseException | str] = iter(answers)
        self._answer: BaseException | str = ""

    async def __call__(self) -> str:
        self.calls.append(virtual_time.clock().monotonic())
        self._answer = next(self._answers, self._answer)
        if isinstance(self._answer, BaseException):
            raise self._answer
        return self._answer


async def connect(attempts: FakeConnect, connect_timeout: timedelta = CONNECT_TIMEOUT) -> str:
    return await connection.connect_with_retry(
        attempts, host="mac", clock=virtual_time.clock(), connect_timeout=connect_timeout
    )


async def test_connect_is_retried_every_ten_seconds() -> None:
    down = errors.HostUnreachable("mac: refused")
    attempts = FakeConnect(down, down, "hello")

    assert await connect(attempts) == "hello"
    assert attempts.calls == [0, 10, 20]


async def test_last_error_is_reported_after_the_timeout() -> None:
    attempts = FakeConnect(
        errors.HostUnreachable("mac: refused"), errors.HostUnreachable("mac: no route")
    )

    with pytest.raises(
        errors.HostUnreachable,
        match=r"^mac: SSH is not available after 300 s; last error: no route$",
    ):
        await connect(attempts)
    assert attempts.calls[-1] == 300


@pytest.mark.parametrize(
    "reason",
    [
        errors.HostKeyChanged("changed"),
        errors.Unauthorized("refused"),
        errors.BadConfiguration("key"),
    ],
)
async def test_permanent_error_is_raised_at_once(reason: errors.Refused) -> None:
    attempts = FakeConnect(errors.HostUnreachable("mac: refused"), reason, "hello")

    with pytest.raises(type(reason)):
        await connect(attempts)
    assert attempts.calls == [0, 10]


async def test_zero_timeout_raises_the_error_itself() -> None:
    attempts = FakeConnect(errors.HostUnreachable("mac: refused"))

    with pytest.raises(errors.HostUnreachable, match=r"^mac: refused$"):
        await connect(attempts, timedelta(0))
    assert attempts.calls == [0]
