"""Names that the agent writes to Nodes and Pods, and the names of its VMs."""

from __future__ import annotations

from datetime import timedelta

from bramley.api.names.labels import golden_hash

NAME = "tart-kubelet"
MODULE = "bramley.cli.tart_kubelet"
KUBELET_VERSION = "tart-kubelet-v0"
RUNTIME_VERSION = "tart"
CONTAINER_ID_SCHEME = "tart://"
GOLDEN_VM_PREFIX = "tuist-golden-"

# Reasons of the Node's conditions.
NODE_READY = "TartKubeletReady"
NODE_STARTING = "TartKubeletStarting"
NODE_TART_BROKEN = "TartNotAnswering"
NODE_NO_SESSION = "NoGuiSession"
NODE_HAS_SUFFICIENT_DISK = "TartKubeletHasSufficientDisk"
NODE_HAS_DISK_PRESSURE = "TartKubeletHasDiskPressure"
NODE_SLOT_LEAKED = "TartKubeletLeakedSlot"
NODE_NO_SLOT_LEAKED = "TartKubeletNoLeakedSlot"
NODE_HAS_DHCP_PRESSURE = "TartKubeletHasDHCPPressure"
NODE_HAS_SUFFICIENT_LEASES = "TartKubeletHasSufficientLeases"

# The checks of the health and readiness endpoints; the first is followed by the Node's name.
HEALTH_OF_NODE = "node/"
READY_LEASE = "lease"

# The folder in TART_HOME from which the files of incomplete VMs are removed.
REMOVED_FOLDER = ".tart-kubelet-removed"

# Files of the state folder.
LOCK_FILE = "agent.lock"

# Reasons in the status of Pods and containers.
CREATE_FAILED = "TartCreateFailed"
RUN_EXITED = "TartRunExited"
RUN_FAILED = "TartRunFailed"
RUN_LOST = "TartRunLost"
GUEST_CRASHED = "GuestCrashed"
NETWORK_LOST = "NetworkLost"
STOPPED = "Stopped"
BOOTING = "BootingVM"
AWAITING_SLOT = "AwaitingSlot"
HOST_REBOOTED = "HostRebooted"
DEADLINE_EXCEEDED = "DeadlineExceeded"
UNSUPPORTED = "UnsupportedPod"
COMPLETED = "Completed"
ERROR = "Error"

# The window over which CPU usage is averaged.
USAGE_WINDOW = timedelta(seconds=10)

# The pool label of metrics for a Pod without a pool.
UNKNOWN_POOL = "unknown"


def container_id(vm: str) -> str:
    """Return the container id of a VM in a container status."""
    return f"{CONTAINER_ID_SCHEME}{vm}"


def golden_vm(image: str) -> str:
    """Return the name of the VM that is the golden base of an image."""
    return f"{GOLDEN_VM_PREFIX}{golden_hash(image)}"


def is_golden_vm(vm: str) -> bool:
    """Return whether a VM has the name of a golden base."""
    digits = vm.removeprefix(GOLDEN_VM_PREFIX)
    return vm != digits and len(digits) == 16 and all(each in "0123456789abcdef" for each in digits)


def service_account(machine: str) -> str:
    """Return the name of the ServiceAccount of a machine's agent."""
    return f"{NAME}-{machine}"


def token_secret(machine: str) -> str:
    """Return the name of the Secret with the token of a machine's agent."""
    return f"{NAME}-{machine}-token"
