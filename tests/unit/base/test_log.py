from __future__ import annotations

import asyncio
import io
import json
import logging
from typing import Any

import pytest

from bramley.base import log
from bramley.base.secret import Secret

pytestmark = pytest.mark.usefixtures("restore_logging")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def json_lines(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_pipe_gets_one_json_object_per_line() -> None:
    out = io.StringIO()
    log.configure(stream=out)

    log.get("bramley.test").info("Creating pod", pod="a", tries=2)

    [line] = json_lines(out)
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "info",
        "logger": "bramley.test",
        "message": "Creating pod",
        "pod": "a",
        "tries": 2,
    }


def test_a_terminal_gets_coloured_text_with_the_facts_behind_it() -> None:
    out = Terminal()
    log.configure(stream=out)

    log.get("bramley.test").warning("Waiting for lease", holder="other process", seconds=3)

    assert "\x1b[33mwarning" in out.getvalue()
    assert out.getvalue().rstrip().endswith('holder="other process" seconds=3')


def test_readable_text_in_a_file_has_no_colours() -> None:
    out = io.StringIO()
    log.configure(stream=out, form="readable")

    log.get("bramley.test").info("Creating pod")

    assert "\x1b" not in out.getvalue()
    assert "Creating pod" in out.getvalue()


def test_a_newline_in_a_fact_does_not_forge_a_second_line() -> None:
    out = io.StringIO()
    log.configure(stream=out, form="readable")

    log.get("bramley.test").info("Refusing name", name="x\n12:00:00 info    All is well")

    assert len(out.getvalue().splitlines()) == 1


def test_an_escape_sequence_in_a_fact_does_not_reach_the_terminal() -> None:
    out = io.StringIO()
    log.configure(stream=out, form="readable")

    log.get("bramley.test").info("Refusing name", name="\x1b[2Jgone")

    assert "\x1b" not in out.getvalue()


def test_bound_facts_are_on_every_line_inside_and_on_none_outside() -> None:
    out = io.StringIO()
    log.configure(stream=out)
    logger = log.get("bramley.test")

    with log.bound(reconcile="r1"), log.bound(pod="a"):
        logger.info("Inside")
    logger.info("Outside")

    inside, outside = json_lines(out)
    assert (inside["reconcile"], inside["pod"]) == ("r1", "a")
    assert "reconcile" not in outside
    assert "pod" not in outside


async def test_bound_facts_do_not_leak_into_another_task() -> None:
    out = io.StringIO()
    log.configure(stream=out)

    async def work(name: str) -> None:
        with log.bound(key=name):
            await asyncio.sleep(1)
            log.get("bramley.test").info("Done", name=name)

    async with asyncio.TaskGroup() as group:
        group.create_task(work("a"))
        group.create_task(work("b"))

    assert all(line["key"] == line["name"] for line in json_lines(out))


@pytest.mark.parametrize("form", ["json", "readable"])
def test_a_secret_among_the_facts_stays_hidden(form: str) -> None:
    out = io.StringIO()
    log.configure(stream=out, form=form)

    log.get("bramley.test").info(
        "Logging in", token=Secret("hunter2"), all=[Secret("hunter2")], user="me"
    )

    assert "hunter2" not in out.getvalue()
    assert "me" in out.getvalue()


@pytest.mark.parametrize("form", ["json", "readable"])
def test_an_error_carries_its_traceback(form: str) -> None:
    out = io.StringIO()
    log.configure(stream=out, form=form)

    with pytest.raises(KeyError) as caught:
        dict[str, str]()["nothing under this key"]
    log.get("bramley.test").error("Reconcile failed", exc=caught.value)

    assert "nothing under this key" in out.getvalue()
    assert "Traceback" in out.getvalue()


def test_a_fact_cannot_replace_the_message_or_the_level() -> None:
    out = io.StringIO()
    log.configure(stream=out)

    log.get("bramley.test").warning("Truth", level="debug", time="never")

    [line] = json_lines(out)
    assert (line["level"], line["message"]) == ("warning", "Truth")
    assert line["time"] != "never"


def test_lines_below_the_level_are_not_written() -> None:
    out = io.StringIO()
    log.configure(stream=out, level="warning")

    log.get("bramley.test").info("Quiet")
    log.get("bramley.test").error("Loud")

    assert [line["message"] for line in json_lines(out)] == ["Loud"]


def test_lines_of_other_libraries_get_the_same_form() -> None:
    out = io.StringIO()
    log.configure(stream=out)

    logging.getLogger("some.library").info("Started with %d workers", 1)

    assert json_lines(out)[0]["message"] == "Started with 1 workers"
