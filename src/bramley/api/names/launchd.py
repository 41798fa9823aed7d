"""Labels of launchd jobs on a Mac, and what launchctl prints about a session."""

from __future__ import annotations

import re

AGENT = "dev.tuist.tart-kubelet"
LOG_ROTATION = "dev.tuist.log-rotation"
NODE_EXPORTER = "dev.tuist.node-exporter"
PACKET_FILTER = "dev.tuist.pfctl-runners"
TAILSCALED = "com.tailscale.tailscaled"
# Part of macOS: restarted by `launchctl kickstart`, because launchd does not restart it after a SIGHUP.
LOGINWINDOW = "com.apple.loginwindow"
GUI_SESSION = "session = Aqua"
_SESSION_LINE = re.compile(r"^\s*session = \w+\s*$", re.MULTILINE)
# The exit codes if a user has no GUI session: there is no such domain, or only that of a login over SSH.
_NO_DOMAIN, _UNSUPPORTED_DOMAIN = 112, 125
_NO_DOMAIN_MESSAGE = "Could not find domain"


def daemon_plist(label: str) -> str:
    """Return the path of the property list of a system daemon."""
    return f"/Library/LaunchDaemons/{label}.plist"


def in_system(label: str) -> str:
    """Return the launchctl service target of a system daemon."""
    return f"system/{label}"


def gui(uid: int) -> str:
    """Return the launchctl domain target of a user's GUI session."""
    return f"gui/{uid}"


def has_gui_session(code: int, output: str) -> bool | None:
    """Return whether `launchctl print gui/<uid>`, run by root, found a session; None if that is not an answer.

    A refusal by sudo, a timeout and an error of launchd are no answers. Who takes them for a missing session and restarts
    loginwindow ends a live one.
    """
    if code == 0:
        return GUI_SESSION in output if _SESSION_LINE.search(output) else None
    is_missing = code in {_NO_DOMAIN, _UNSUPPORTED_DOMAIN} or _NO_DOMAIN_MESSAGE in output
    return False if is_missing else None


def actions_runner(organisation: str, node: str) -> str:
    """Return the label of the GitHub Actions runner of a builder."""
    return f"actions.runner.{organisation}.{node}"
