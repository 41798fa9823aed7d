"""Labels of launchd jobs on a Mac."""

from __future__ import annotations

AGENT = "dev.tuist.tart-kubelet"
LOG_ROTATION = "dev.tuist.log-rotation"
NODE_EXPORTER = "dev.tuist.node-exporter"
PACKET_FILTER = "dev.tuist.pfctl-runners"
TAILSCALED = "com.tailscale.tailscaled"
# Part of macOS: restarted by `launchctl kickstart`, because launchd does not restart it after a SIGHUP.
LOGINWINDOW = "com.apple.loginwindow"


def daemon_plist(label: str) -> str:
    """Return the path of the property list of a system daemon."""
    return f"/Library/LaunchDaemons/{label}.plist"


def in_system(label: str) -> str:
    """Return the launchctl service target of a system daemon."""
    return f"system/{label}"


def gui(uid: int) -> str:
    """Return the launchctl domain target of a user's GUI session."""
    return f"gui/{uid}"


def actions_runner(organisation: str, node: str) -> str:
    """Return the label of the GitHub Actions runner of a builder."""
    return f"actions.runner.{organisation}.{node}"
