"""Ages of dates on a host whose time of day is set."""

from __future__ import annotations

import asyncio
import tempfile
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.agent.host_clock import JUMP_SECONDS, HostClock
from tests import virtual_time
from tests.unit.agent.clocks import SetClock, a_clock

HOUR = timedelta(hours=1)
# What is corrected without a jump, and the whole seconds of dates.
CLOSE = timedelta(seconds=JUMP_SECONDS + 2)


def steady(clock: SetClock, folder: Path, boot: str = "boot-1") -> HostClock:
    return HostClock(clock, folder / "clock", boot_id=lambda: boot)


async def test_age_of_a_date_before_a_jump_is_right(tmp_path: Path) -> None:
    inner = a_clock()
    clock = steady(inner, tmp_path)
    date = clock.now()
    await asyncio.sleep(600)
    inner.jump(HOUR)
    await asyncio.sleep(10)

    assert clock.age(date) == timedelta(seconds=610)
    assert clock.now() - clock.rebased(date) == timedelta(seconds=610)
    inner.jump(-2 * HOUR)
    await asyncio.sleep(10)
    assert clock.age(date) == timedelta(seconds=620)


async def test_future_date_has_no_age(tmp_path: Path) -> None:
    clock = steady(a_clock(), tmp_path)

    assert clock.age(clock.now() + HOUR) == timedelta()


async def test_next_agent_of_the_same_boot_reads_the_jump(tmp_path: Path) -> None:
    inner = a_clock()
    first = steady(inner, tmp_path)
    date = first.now()
    await asyncio.sleep(100)
    inner.jump(HOUR)

    assert steady(inner, tmp_path).age(date) == timedelta(seconds=100)
    # Seconds since another start of the host mean nothing, so the time of day has to be believed.
    assert steady(inner, tmp_path, "boot-2").age(date) == HOUR + timedelta(seconds=100)


@pytest.mark.parametrize("content", [b"", b"{}", b'{"boot_id": "boot-1", "marks": [[9e9, 1.0]]}'])
async def test_invalid_file_is_replaced(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "clock").write_bytes(content)
    clock = steady(a_clock(), tmp_path)

    assert clock.age(clock.now() - HOUR) == HOUR


async def test_clock_works_without_a_boot_id_or_a_writable_file(tmp_path: Path) -> None:
    def boot_id() -> str:
        raise OSError("no boot id")

    (tmp_path / "file").write_text("")
    inner = a_clock()
    clock = HostClock(inner, tmp_path / "file/clock", boot_id=boot_id)
    date = clock.now()
    await asyncio.sleep(60)
    inner.jump(HOUR)

    assert clock.age(date) == timedelta(seconds=60)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("pass"), st.integers(1, 5000)),
        st.tuples(st.just("jump"), st.integers(-7200, 7200)),
        st.tuples(st.just("start again"), st.just(0)),
    ),
    max_size=12,
)


@given(steps=STEPS, forward=st.booleans())
def test_no_jump_ever_makes_anything_older(steps: list[tuple[str, int]], *, forward: bool) -> None:
    async def run(folder: Path) -> None:
        inner = a_clock()
        clock = steady(inner, folder)
        dates = [(clock.now(), clock.monotonic())]
        for what, number in steps:
            if what == "pass":
                await asyncio.sleep(number)
            elif what == "jump":
                inner.jump(timedelta(seconds=abs(number) if forward else number))
            else:
                clock = steady(inner, folder)
            check(clock, dates)
            dates.append((clock.now(), clock.monotonic()))

    def check(clock: HostClock, dates: list[tuple[datetime, float]]) -> None:
        for date, began in dates:
            true = timedelta(seconds=clock.monotonic() - began)
            assert clock.age(date) <= true + CLOSE
            if forward:
                # Only a clock that was set back has shown the same date twice.
                assert clock.age(date) >= true - CLOSE

    with tempfile.TemporaryDirectory() as folder:
        virtual_time.run(run(Path(folder)))
