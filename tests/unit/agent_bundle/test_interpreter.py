"""The running interpreter's tree: only its own files, with search paths that lead to itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from bramley.app.agent_bundle import interpreter, pruning

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
def test_only_the_interpreters_own_folder_is_replaced(before: str, after: str) -> None:
    assert interpreter.relative(before, OWN, "$ORIGIN/../lib") == after


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
def test_what_an_agent_has_no_use_for_stays_behind(name: str) -> None:
    assert pruning.is_unneeded(name)


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
def test_the_rest_of_the_standard_library_stays_whole(name: str) -> None:
    assert not pruning.is_unneeded(name)
