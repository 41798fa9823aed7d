"""The tree of the running interpreter: only needed files, with relative search paths."""

from __future__ import annotations

from pathlib import Path

import pytest

from bramley.app.agent_bundle import interpreter
from bramley.base.errors import BadConfiguration
from tests.unit.agent_bundle import binaries

OWN = Path("/opt/python/3.11/lib")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("/opt/python/3.11/lib", "$ORIGIN/../lib"),
        ("/opt/python/3.11/bin/../lib/", "$ORIGIN/../lib"),
        ("/opt/openssl/lib:/opt/python/3.11/lib", "/opt/openssl/lib:$ORIGIN/../lib"),
        ("/opt/openssl/lib", "/opt/openssl/lib"),
        ("$ORIGIN/../lib", "$ORIGIN/../lib"),
    ],
)
def test_only_the_own_folder_is_replaced_in_a_search_path(before: str, after: str) -> None:
    assert interpreter.relative_search_path(before, OWN, "$ORIGIN/../lib") == after


@pytest.mark.parametrize(
    "name",
    [
        "test/test_os.py",
        "ctypes/test/__init__.py",
        "site-packages/pip/__init__.py",
        "dist-packages/apt.py",
        "__pycache__/os.cpython-311.pyc",
        "config-3.11-x86_64-linux-gnu/libpython3.11.a",
        "lib-dynload/_testcapi.cpython-311.so",
        "lib-dynload/_tkinter.cpython-311-darwin.so",
        "sitecustomize.py",
        "EXTERNALLY-MANAGED",
    ],
)
def test_unneeded_files_are_left_out(name: str) -> None:
    assert interpreter.is_unneeded(name)


@pytest.mark.parametrize(
    "name",
    [
        "os.py",
        "asyncio/__init__.py",
        "LICENSE.txt",
        "lib-dynload/_ssl.cpython-311.so",
        "contextlib.py",
    ],
)
def test_standard_library_is_kept(name: str) -> None:
    assert not interpreter.is_unneeded(name)


BEFORE = "/opt/python/3.11.7/lib:/opt/openssl/lib"
AFTER = "$ORIGIN/../lib:/opt/openssl/lib"


@pytest.mark.parametrize("tags", [(29,), (15,), (15, 29)], ids=["runpath", "rpath", "both"])
def test_only_the_search_path_is_rewritten(tags: tuple[int, ...]) -> None:
    before = binaries.elf(BEFORE, tags=tags)

    after = interpreter.with_search_path(before, lambda _: AFTER)

    assert interpreter.elf_search_path(before) == BEFORE
    assert interpreter.elf_search_path(after) == AFTER
    assert after == before.replace(BEFORE.encode(), AFTER.encode().ljust(len(BEFORE), b"\0"))


def test_longer_search_path_is_refused() -> None:
    with pytest.raises(BadConfiguration, match=r"\$ORIGIN/../lib is longer than /lib"):
        interpreter.with_search_path(binaries.elf("/lib"), lambda _: "$ORIGIN/../lib")


@pytest.mark.parametrize("content", [binaries.elf(None), binaries.mach_o(), b"#!/bin/sh\n", b""])
def test_file_without_a_search_path_is_unchanged(content: bytes) -> None:
    assert interpreter.elf_search_path(content) == ""
    assert interpreter.with_search_path(content, lambda _: "elsewhere") == content
