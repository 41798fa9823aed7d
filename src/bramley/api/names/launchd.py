"""Labels of launchd jobs on a Mac."""

from __future__ import annotations

AGENT = "dev.tuist.tart-kubelet"
LOG_ROTATION = "dev.tuist.log-rotation"
NODE_EXPORTER = "dev.tuist.node-exporter"
PACKET_FILTER = "dev.tuist.pfctl-runners"
TAILSCALED = "com.tailscale.tailscaled"
# macOS' own: kicked, never signalled, because launchd does not restart it after a SIGHUP.
LOGINWINDOW = "com.apple.loginwindow"


def daemon_plist(label: str) -> str:
    """Return where the property list of a system daemon lives."""
    return f"/Library/LaunchDaemons/{label}.plist"


def in_system(label: str) -> str:
    """Return how launchctl calls a system daemon."""
    return f"system/{label}"


def gui(uid: int) -> str:
    """Return how launchctl calls the graphical session of a user."""
    return f"gui/{uid}"


def actions_runner(organisation: str, node: str) -> str:
    """Return the label of the GitHub Actions runner of a builder."""
    return f"actions.runner.{organisation}.{node}"
