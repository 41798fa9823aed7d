"""A session is there, missing or unknown; only launchctl's own answer makes it missing, because who misses one restarts loginwindow."""

from __future__ import annotations

import pytest

from bramley.api.names import launchd


@pytest.mark.parametrize(
    ("code", "output", "has_session"),
    [
        (0, "gui/501 = {\n\ttype = login\n\tsession = Aqua\n}\n", True),
        (0, "gui/501 = {\r\n\tsession = Aqua\r\n}\r\n", True),
        (0, "gui/501 = {\n\tsession = LoginWindow\n}\n", False),
        (0, "gui/501 = {\n\tsession = Background\n}\n", False),
        (112, "Bad request.\nCould not find domain for user gui: 501\n", False),
        (113, "Could not find domain for user gui: 501\n", False),
        (125, "Could not print domain: 125: Domain does not support specified action\n", False),
        (112, "", False),
        (0, "", None),
        (0, "gui/501 = {\n}\n", None),
        (0, "gui/501 = {\n\taudit session = 100008\n}\n", None),
        (1, "Could not print domain: 1: Operation not permitted\n", None),
        (1, "sudo: a password is required\n", None),
        (1, "m1 is not in the sudoers file.\n", None),
        (3, "No such process\n", None),
        (5, "Could not print domain: 5: Input/output error\n", None),
        (64, "Unrecognized target specifier.\n", None),
        (113, 'Could not find service "501" in domain for system\n', None),
        (124, "", None),
        (127, "sudo: command not found\n", None),
        (143, "gui/501 = {\n\tsession = Aqua\n", None),
        (-9, "", None),
    ],
)
def test_session_is_missing_only_by_an_answer(
    code: int, output: str, has_session: bool | None
) -> None:
    assert launchd.has_gui_session(code, output) is has_session
