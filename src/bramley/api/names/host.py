"""Files and folders on a Mac that other programs, or an older release, know by path."""

from __future__ import annotations

# The packet filter: one marked block in the system's file, one anchor file of ours.
PF_CONF = "/etc/pf.conf"
PF_BEGIN = "# BEGIN tuist.runners"
PF_END = "# END tuist.runners"
PF_ANCHOR = "tuist.runners"
PF_ANCHOR_FILE = "/etc/pf.anchors/tuist.runners"
# How a line of the unmarked block of older releases begins.
PF_LEGACY_COMMENT = "# Tuist runner VM egress filter"
PF_BOOT_LOG = "/var/log/tuist-pfctl-runners.log"
# What vmnet gives to VMs, and its bridges: one per network of that range.
VM_NETWORK = "192.168.64.0/22"
VM_BRIDGES = ("bridge100", "bridge101", "bridge102", "bridge103")

# Where programs of ours lie; macOS has neither folder at first.
PROGRAMS = "/usr/local/bin"
LIBRARIES = "/usr/local/lib"

# Automatic login.
KCPASSWORD = "/etc/kcpassword"
LOGINWINDOW_DEFAULTS = "/Library/Preferences/com.apple.loginwindow"

# Settings of the whole Mac.
SCREENSAVER_DEFAULTS = "/Library/Preferences/com.apple.screensaver"
GLOBAL_DEFAULTS = "/Library/Preferences/.GlobalPreferences"
SOFTWARE_UPDATE_DEFAULTS = "/Library/Preferences/com.apple.SoftwareUpdate"
# Without a folder: macOS reads this one from root's own settings, and has it count from the next start.
LOCAL_NETWORK_DEFAULTS = "com.apple.network.local-network"

# The agent.
AGENT_BINARY = "/usr/local/bin/tart-kubelet"
AGENT_FOLDER = "/etc/tart-kubelet"
AGENT_KUBECONFIG = "/etc/tart-kubelet/kubeconfig"
CLIENT_AUTHORITY = "/etc/tart-kubelet/client-ca.crt"
# Which parts were applied to this Mac, each by its hash; root's, unlike the agent's own folders.
STAMPS_FOLDER = "/var/db/tart-kubelet"
STAMPS = "/var/db/tart-kubelet/applied.json"
# Which run works on this Mac; macOS empties the folder at each start.
CLAIM = "/var/run/tart-kubelet.claim"
# What may be known of the kubeconfig: whom it names, where it leads and until when; no secret.
KUBECONFIG_NOTE = "/var/db/tart-kubelet/kubeconfig.json"
# The start of the Mac and the process of an agent that has to make place for another: what it began with was changed under it.
RESTART_DUE = "/var/db/tart-kubelet/restart-due"
# During which start of the Mac its allow-list of the local network was written.
LOCAL_NETWORK_BOOT = "/var/db/tart-kubelet/local-network-boot"
AGENT_STATE = "/var/lib/tart-kubelet"
AGENT_LOG = "/var/log/tart-kubelet.log"
VM_LOGS = "/var/log/tart-vms"
VM_USER_DATA = "/var/lib/tart-userdata"
VNC_CONTROL = "/var/lib/tart-vnc-control"

# What the agent runs from. Releases and interpreters lie beside each other, each in a folder named by its version and never
# changed once it is there; the one link says which release runs, and the release says with which interpreter.
AGENT_ROOT = "/opt/tart-kubelet"
AGENT_CURRENT = "/opt/tart-kubelet/current"
AGENT_INTERPRETERS = "/opt/tart-kubelet/python"
# In each of them: what it held when it was put there, so that a look tells whether it still does.
SEAL = ".bramley-seal"
# The release that ran before, kept for people who want it back.
AGENT_PREVIOUS = "/opt/tart-kubelet/previous"
# What AGENT_BINARY is a link to.
AGENT_CURRENT_BINARY = "/opt/tart-kubelet/current/bin/tart-kubelet"

# Tart: the bundle holds the entitlements, so the binary is a wrapper.
TART_BUNDLE = "/usr/local/lib/tart.app"
TART_BINARY = "/usr/local/bin/tart"
# In the bundle, wherever that lies.
TART_IN_BUNDLE = "Contents/MacOS/tart"
# The bundle that was replaced, until the new one has answered.
TART_BUNDLE_BEFORE = "/usr/local/lib/tart.app.before"

# Builders.
ACTIONS_RUNNER = "/opt/actions-runner"
BUILD_CACHE = "/opt/tuist-build-cache"
BUILD_CACHE_VARIABLE = "TUIST_MIX_BUILD_ROOT"
ZSHENV = "/etc/zshenv"

# Where jobs of ours look for programs; launchd's own list has neither Homebrew nor /usr/local.
SEARCH_PATH = "/usr/local/bin:/opt/homebrew/bin:/usr/bin:/bin:/usr/sbin:/sbin"

# The tailnet.
TAILSCALE_BINARY = "/usr/local/bin/tailscale"
TAILSCALE_AUTH_KEY = "/etc/tuist/tailscale-auth-key"
TAILNET_RESOLVER = "/etc/resolver/ts.net"
# What the Mac was logged in with, but the key.
TAILNET_NOTE = "/var/db/tart-kubelet/tailnet.json"
TAILSCALED_BINARY = "/usr/local/bin/tailscaled"
TAILSCALED_FOLDER = "/var/lib/tailscale"
TAILSCALED_STATE = "/var/lib/tailscale/tailscaled.state"
TAILSCALED_SOCKET = "/var/run/tailscaled.socket"
TAILSCALED_LOG = "/var/log/tailscaled.log"
TAILSCALED_PORT = 41641

# Metrics of the host.
NODE_EXPORTER_BINARY = "/usr/local/bin/node_exporter"
# Where a new one lies until it has answered.
NODE_EXPORTER_INCOMING = "/usr/local/lib/.node_exporter.incoming"
NODE_EXPORTER_WRAPPER = "/usr/local/bin/tuist-node-exporter-wrapper"
NODE_EXPORTER_LOG = "/var/log/tuist-node-exporter.log"
NODE_EXPORTER_PORT = 9100

# What keeps the logs of our jobs from growing without end.
LOG_ROTATION = "/usr/local/bin/tuist-rotate-logs"
LOG_ROTATION_LOG = "/var/log/tuist-rotate-logs.log"


def sudoers(user: str) -> str:
    """Return the path of the file that lets this user run sudo without a password."""
    return f"/etc/sudoers.d/{user}-nopasswd"


def home(user: str) -> str:
    """Return the home folder of a user."""
    return f"/Users/{user}"


def agent_release(version: str) -> str:
    """Return the folder of one version of the agent's code."""
    return f"{AGENT_ROOT}/{version}"


def agent_interpreter(version: str) -> str:
    """Return the folder of one version of the agent's interpreter."""
    return f"{AGENT_INTERPRETERS}/{version}"
