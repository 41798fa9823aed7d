"""The contract of host and guest: mounted folders, the files in them, and the guest's copies."""

from __future__ import annotations

# Names of the shared folders; the guest sees them below this root.
SHARES_ROOT = "/Volumes/My Shared Files"
ENV_SHARE = "env"
CACHE_SHARE = "cache"
STATUS_SHARE = "status"

# In the env share, written by the host.
ENV_FILE = "tuist.env"
TOKEN_FILE = "sa_token"  # noqa: S105 - the name of a file

# In the status share, written by the guest when it ends.
EXIT_CODE_FILE = "runner-rc"
LOG_FILE = "runner.log"

# In the guest's own file system.
GUEST_ENV_FILE = "/etc/tuist.env"
GUEST_TOKEN_FILE = "/etc/tuist-sa-token"  # noqa: S105 - the path of a file
CLAIM_MARKER = "/tmp/tuist-runner-shell-claimed"  # noqa: S108 - fixed by the guest image
WORK_FOLDER_MACOS = "/Users/runner/work"
WORK_FOLDER_LINUX = "/home/runner/work"

# The command that shuts a guest down; its user may run it without a password.
SHUTDOWN = ("sudo", "-n", "/sbin/shutdown", "-h", "now")
