"""The tables of limits in the reference match the code and are complete."""

from __future__ import annotations

import dataclasses
import re
from datetime import timedelta

import pytest
import typer
from typer.core import TyperGroup

from bramley.apiserver.apimachinery import settings as api
from bramley.apiserver.auth import bearer_tokens
from bramley.apiserver.pki import tls
from bramley.apiserver.store import data_folder
from bramley.apiserver.store import settings as store
from bramley.cli import failures, main, options
from tests.meta.documents import ROOT

REFERENCE = (ROOT / "docs/reference/settings.md").read_text()
# Neither limits nor choices of an operator.
LEFT_OUT = {"git_version", "short_history_resources", "writer_thread"}


def formatted(value: object, name: str) -> str:
    """Return a limit as the documentation writes it."""
    match value:
        case timedelta():
            seconds = value.total_seconds()
            return f"{seconds:g} s" if seconds <= 60 else f"{seconds / 60:g} min"
        case (timedelta() as least, timedelta() as most):
            return f"{formatted(least, name)} to {formatted(most, name)}"
        case store.HistoryLimits(count, size_bytes, age):
            return (
                f"{count:,} changes, {formatted(size_bytes, 'size_bytes')}, {formatted(age, name)}"
            )
        case bool():
            return "on" if value else "off"
        case str():
            return value
        case int() if name.endswith("_bytes"):
            return f"{value / 2**20:g} MiB" if value >= 2**20 else f"{value / 2**10:g} KiB"
        case _:
            return f"{value:,}"


@pytest.mark.parametrize("settings", [api.Settings(), store.Settings()], ids=["api", "store"])
def test_every_limit_is_documented_with_its_value(settings: api.Settings | store.Settings) -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", REFERENCE, re.MULTILINE))
    names = [field.name for field in dataclasses.fields(settings) if field.name not in LEFT_OUT]

    assert {name: rows.get(name) for name in names} == {
        name: formatted(getattr(settings, name), name) for name in names
    }


@pytest.mark.parametrize("command", ["up", "apiserver"])
def test_every_setting_is_documented_with_its_variable(command: str) -> None:
    rows = re.findall(r"^\| `(--[\w-]+)`[^|]*\| `(\w+)` \|", REFERENCE, re.MULTILINE)
    program = typer.main.get_command(main.command_line())
    assert isinstance(program, TyperGroup)

    given = [
        (option.opts[0], option.envvar)
        for option in program.commands[command].params
        if option.envvar
    ]

    assert set(given) <= set(rows)


def test_documented_defaults_and_files_match_the_code() -> None:
    for name in (
        options.LISTEN,
        data_folder.DATABASE,
        data_folder.LOCK,
        bearer_tokens.FILE,
        tls.FOLDER,
    ):
        assert f"`{name}`" in REFERENCE


def test_documented_exit_codes_match_the_code() -> None:
    codes = [int(code) for code in re.findall(r"^\| (\d+) \|", REFERENCE, re.MULTILINE)]

    assert codes == [0, failures.FAILED, failures.UNUSABLE, failures.BUG, failures.STOPPED]
