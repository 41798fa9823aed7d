"""Files and folders on a Mac whose paths other programs or older releases depend on."""

from __future__ import annotations

# The packet filter: one marked block in the system's file, and our own anchor file.
PF_CONF = "/etc/pf.conf"
PF_BEGIN = "# BEGIN tuist.runners"
PF_END = "# END tuist.runners"
PF_ANCHOR = "tuist.runners"
PF_ANCHOR_FILE = "/etc/pf.anchors/tuist.runners"
# The prefix of the unmarked block of older releases.
PF_LEGACY_COMMENT = "# Tuist runner VM egress filter"
PF_BOOT_LOG = "/var/log/tuist-pfctl-runners.log"
# The address range of vmnet, and its bridges: one per network of that range.
VM_NETWORK = "192.168.64.0/22"
VM_BRIDGES = ("bridge100", "bridge101", "bridge102", "bridge103")

# The folders of our programs; a new macOS has neither.
PROGRAMS = "/usr/local/bin"
LIBRARIES = "/usr/local/lib"

# Automatic login.
KCPASSWORD = "/etc/kcpassword"
LOGINWINDOW_DEFAULTS = "/Library/Preferences/com.apple.loginwindow"

# Settings of the whole Mac.
SCREENSAVER_DEFAULTS = "/Library/Preferences/com.apple.screensaver"
GLOBAL_DEFAULTS = "/Library/Preferences/.GlobalPreferences"
SOFTWARE_UPDATE_DEFAULTS = "/Library/Preferences/com.apple.SoftwareUpdate"
# A domain, not a path: macOS reads it from root's own preferences, and applies it at the next boot.
LOCAL_NETWORK_DEFAULTS = "com.apple.network.local-network"
# macOS' own DHCP server, which serves the network of VMs, gets its lease time from this file, at this key of this dictionary.
SHARING_PREFERENCES = (
    "/Library/Preferences/SystemConfiguration/com.apple.InternetSharing.default.plist"
)
SHARING_DHCP = "bootpd"
SHARING_LEASE_SECONDS = "DHCPLeaseTimeSecs"

# The identifier of the configuration profile: a new profile with the same one replaces the installed one.
MDM_PROFILE = "dev.tuist.mac-host"

# The agent.
AGENT_BINARY = "/usr/local/bin/tart-kubelet"
AGENT_FOLDER = "/etc/tart-kubelet"
AGENT_KUBECONFIG = "/etc/tart-kubelet/kubeconfig"
CLIENT_AUTHORITY = "/etc/tart-kubelet/client-ca.crt"
REGISTRY_CREDENTIALS = "/etc/tart-kubelet/registry-credentials.json"
# The applied parts of the configuration, by hash; owned by root, unlike the agent's own folders.
STAMPS_FOLDER = "/var/db/tart-kubelet"
STAMPS = "/var/db/tart-kubelet/applied.json"
# The claim of the run that changes this Mac; macOS empties the folder at each boot.
CLAIM = "/var/run/tart-kubelet.claim"
# The facts of the kubeconfig without its secrets: user, server and expiry.
KUBECONFIG_NOTE = "/var/db/tart-kubelet/kubeconfig.json"
# The boot and the pid of an agent that must be restarted, because its configuration has changed since it started.
RESTART_DUE = "/var/db/tart-kubelet/restart-due"
# The boot in which the allow-list of the local network was written.
LOCAL_NETWORK_BOOT = "/var/db/tart-kubelet/local-network-boot"
AGENT_STATE = "/var/lib/tart-kubelet"
AGENT_LOG = "/var/log/tart-kubelet.log"
VM_LOGS = "/var/log/tart-vms"
VM_USER_DATA = "/var/lib/tart-userdata"
VNC_CONTROL = "/var/lib/tart-vnc-control"
# The leases of macOS' own DHCP server, which serves VMs.
DHCP_LEASES = "/var/db/dhcpd_leases"

# The installation of the agent. Each release and each interpreter has its own folder, named by its version and never changed;
# a link selects the release, and the release selects the interpreter.
AGENT_ROOT = "/opt/tart-kubelet"
AGENT_CURRENT = "/opt/tart-kubelet/current"
AGENT_INTERPRETERS = "/opt/tart-kubelet/python"
# In each of them: a checksum of the installed content, to detect changes.
SEAL = ".bramley-seal"
# The previous release, kept for a rollback by hand.
AGENT_PREVIOUS = "/opt/tart-kubelet/previous"
# The target of the link AGENT_BINARY.
AGENT_CURRENT_BINARY = "/opt/tart-kubelet/current/bin/tart-kubelet"

# Tart: the bundle has the entitlements, so the binary is a wrapper script.
TART_BUNDLE = "/usr/local/lib/tart.app"
TART_BINARY = "/usr/local/bin/tart"
# Relative to the bundle.
TART_IN_BUNDLE = "Contents/MacOS/tart"
# The replaced bundle, until the new one was verified.
TART_BUNDLE_BEFORE = "/usr/local/lib/tart.app.before"

# Builders.
ACTIONS_RUNNER = "/opt/actions-runner"
# The registration without its secrets: organisation, name, labels and group, and whose session the runner is loaded into.
ACTIONS_RUNNER_NOTE = "/var/db/tart-kubelet/actions-runner.json"
# config.sh reads the value of its option --token from here.
ACTIONS_RUNNER_TOKEN_VARIABLE = "ACTIONS_RUNNER_INPUT_TOKEN"  # noqa: S105 - the name of a variable
XCODE = "/Applications/Xcode.app/Contents/Developer"
HOMEBREW = "/opt/homebrew/bin/brew"
HOMEBREW_INSTALLER_URL = "https://raw.githubusercontent.com/Homebrew/install/HEAD/install.sh"
HOMEBREW_INSTALLER = "/var/db/tart-kubelet/homebrew-install.sh"
BUILD_CACHE = "/opt/tuist-build-cache"
BUILD_CACHE_VARIABLE = "TUIST_MIX_BUILD_ROOT"
ZSHENV = "/etc/zshenv"

# The PATH of our jobs; launchd's default has neither Homebrew nor /usr/local.
SEARCH_PATH = "/usr/local/bin:/opt/homebrew/bin:/usr/bin:/bin:/usr/sbin:/sbin"

# The tailnet.
TAILSCALE_BINARY = "/usr/local/bin/tailscale"
TAILSCALE_AUTH_KEY = "/etc/tuist/tailscale-auth-key"
TAILNET_RESOLVER = "/etc/resolver/ts.net"
# The options of the last login, without the key.
TAILNET_NOTE = "/var/db/tart-kubelet/tailnet.json"
TAILSCALED_BINARY = "/usr/local/bin/tailscaled"
TAILSCALED_FOLDER = "/var/lib/tailscale"
TAILSCALED_STATE = "/var/lib/tailscale/tailscaled.state"
TAILSCALED_SOCKET = "/var/run/tailscaled.socket"
TAILSCALED_LOG = "/var/log/tailscaled.log"
TAILSCALED_PORT = 41641

# Metrics of the host.
NODE_EXPORTER_BINARY = "/usr/local/bin/node_exporter"
# The new binary, until it was verified.
NODE_EXPORTER_INCOMING = "/usr/local/lib/.node_exporter.incoming"
NODE_EXPORTER_WRAPPER = "/usr/local/bin/tuist-node-exporter-wrapper"
NODE_EXPORTER_LOG = "/var/log/tuist-node-exporter.log"
NODE_EXPORTER_PORT = 9100

# Rotation of the logs of our jobs.
LOG_ROTATION = "/usr/local/bin/tuist-rotate-logs"
LOG_ROTATION_LOG = "/var/log/tuist-rotate-logs.log"


def sudoers(user: str) -> str:
    """Return the path of the file that lets this user run sudo without a password."""
    return f"/etc/sudoers.d/{user}-nopasswd"


def home(user: str) -> str:
    """Return the home folder of a user."""
    return f"/Users/{user}"


def launch_agents(user: str) -> str:
    """Return the folder of the launchd agents of a user, which are loaded into the user's sessions."""
    return f"{home(user)}/Library/LaunchAgents"


def agent_release(version: str) -> str:
    """Return the folder of one version of the agent's code."""
    return f"{AGENT_ROOT}/{version}"


def agent_interpreter(version: str) -> str:
    """Return the folder of one version of the agent's interpreter."""
    return f"{AGENT_INTERPRETERS}/{version}"
