"""A Mac that is not there yet is waited for; what waiting cannot mend is told at once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from bramley.base import errors, virtual_time
from bramley.host.ssh import dialling

PATIENCE = timedelta(minutes=5)


class Phone:
    """Answers one call after the other; the last answer stands."""

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


async def reached(phone: Phone, patience: timedelta = PATIENCE) -> str:
    return await dialling.until_there(
        phone, told="mac", clock=virtual_time.clock(), patience=patience
    )


async def test_a_mac_is_dialled_every_ten_seconds_until_it_answers() -> None:
    down = errors.HostUnreachable("mac: refused")
    phone = Phone(down, down, "hello")

    assert await reached(phone) == "hello"
    assert phone.calls == [0, 10, 20]


async def test_after_five_minutes_the_last_reason_is_told() -> None:
    phone = Phone(errors.HostUnreachable("mac: refused"), errors.HostUnreachable("mac: no route"))

    with pytest.raises(
        errors.HostUnreachable, match=r"^mac: SSH is not available after 300 s; at last: no route$"
    ):
        await reached(phone)
    assert phone.calls[-1] == 300


@pytest.mark.parametrize(
    "reason",
    [
        errors.HostKeyChanged("changed"),
        errors.Unauthorized("refused"),
        errors.BadConfiguration("key"),
    ],
)
async def test_what_waiting_does_not_mend_is_told_at_once(reason: errors.Refused) -> None:
    phone = Phone(errors.HostUnreachable("mac: refused"), reason, "hello")

    with pytest.raises(type(reason)):
        await reached(phone)
    assert phone.calls == [0, 10]


async def test_without_patience_the_reason_itself_is_told() -> None:
    phone = Phone(errors.HostUnreachable("mac: refused"))

    with pytest.raises(errors.HostUnreachable, match=r"^mac: refused$"):
        await reached(phone, timedelta(0))
    assert phone.calls == [0]
