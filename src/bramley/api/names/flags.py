"""Flags and environment variables of the agent with their defaults, as the property lists on the Macs contain them."""

from __future__ import annotations

from dataclasses import dataclass

from bramley.api.names import host


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag; `env` is the variable that is used if the flag is not given."""

    name: str
    default: str = ""
    env: str = ""


NODE_NAME = Flag("--node-name", env="TART_KUBELET_NODE_NAME")
PROVIDER_ID = Flag("--provider-id", env="TART_KUBELET_PROVIDER_ID")
NODE_IP = Flag("--node-ip", env="TART_KUBELET_NODE_IP")
NODE_IP_SOURCE = Flag("--node-ip-source", "auto", env="TART_KUBELET_NODE_IP_SOURCE")
SCRAPE_ALLOWED_CIDR = Flag("--scrape-allowed-cidr")
NODE_LABELS = Flag("--node-labels", env="TART_KUBELET_NODE_LABELS")
HOST_CPU = Flag("--host-cpu", "8")
HOST_MEMORY_MB = Flag("--host-memory-mb", "16384")
MAX_PODS = Flag("--max-pods", "2")
METRICS_BIND_ADDRESS = Flag("--metrics-bind-address", ":8080")
HEALTH_PROBE_BIND_ADDRESS = Flag("--health-probe-bind-address", ":8081")
TART_BINARY = Flag("--tart-binary", host.TART_BINARY)
DISABLE_VM_GC = Flag("--disable-vm-gc", "false")
KUBECONFIG = Flag("--kubeconfig", env="KUBECONFIG")
VNC_CONTROL_DIR = Flag("--vnc-control-dir", host.VNC_CONTROL, env="TART_KUBELET_VNC_CONTROL_DIR")
VNC_RELAY_HOST = Flag("--vnc-relay-host", env="TART_KUBELET_VNC_RELAY_HOST")
VNC_RELAY_PORT = Flag("--vnc-relay-port", "0", env="TART_KUBELET_VNC_RELAY_PORT")
RUNNER_CACHE_ROOT = Flag("--runner-cache-root", env="TART_KUBELET_RUNNER_CACHE_ROOT")
CACHE_VOLUME_CAP_GIB = Flag("--cache-volume-cap-gib", "20", env="TART_KUBELET_CACHE_VOLUME_CAP_GIB")
CACHE_VOLUME_CAS_GIB = Flag("--cache-volume-cas-gib", "0", env="TART_KUBELET_CACHE_VOLUME_CAS_GIB")

# Folders, endpoints and sources of the agent; older agents do not have these flags.
STATE_DIR = Flag("--state-dir", host.AGENT_STATE, env="TART_KUBELET_STATE_DIR")
USERDATA_DIR = Flag("--userdata-dir", host.VM_USER_DATA, env="TART_KUBELET_USERDATA_DIR")
VM_LOG_DIR = Flag("--vm-log-dir", host.VM_LOGS, env="TART_KUBELET_VM_LOG_DIR")
TART_HOME = Flag("--tart-home", env="TART_HOME")
GUI_PREFLIGHT = Flag("--gui-preflight", "auto", env="TART_KUBELET_GUI_PREFLIGHT")
KUBELET_BIND_ADDRESS = Flag(
    "--kubelet-bind-address", ":10250", env="TART_KUBELET_KUBELET_BIND_ADDRESS"
)
TLS_CERT_FILE = Flag("--tls-cert-file", env="TART_KUBELET_TLS_CERT_FILE")
TLS_KEY_FILE = Flag("--tls-key-file", env="TART_KUBELET_TLS_KEY_FILE")
CLIENT_CA_FILE = Flag("--client-ca-file", env="TART_KUBELET_CLIENT_CA_FILE")
REGISTRY_CREDENTIALS_FILE = Flag(
    "--registry-credentials-file", env="TART_KUBELET_REGISTRY_CREDENTIALS_FILE"
)
STAGE_MEGABYTES_PER_SECOND = Flag(
    "--stage-megabytes-per-second", env="TART_KUBELET_STAGE_MEGABYTES_PER_SECOND"
)
REGISTER_TAINTS = Flag("--register-taints", env="TART_KUBELET_REGISTER_TAINTS")
VM_BOOT_TIMEOUT = Flag("--vm-boot-timeout", "300", env="TART_KUBELET_VM_BOOT_TIMEOUT")
DHCP_LEASES_FILE = Flag("--dhcp-leases-file", host.DHCP_LEASES, env="TART_KUBELET_DHCP_LEASES_FILE")
AGENT_LOG_LEVEL = Flag("--log-level", "info", env="TART_KUBELET_LOG_LEVEL")
AGENT_LOG_FORMAT = Flag("--log-format", "json", env="TART_KUBELET_LOG_FORMAT")

# Flags of the framework of older agents.
ZAP_DEVEL = Flag("--zap-devel", "false")
ZAP_ENCODER = Flag("--zap-encoder")
ZAP_LOG_LEVEL = Flag("--zap-log-level")
ZAP_STACKTRACE_LEVEL = Flag("--zap-stacktrace-level")
ZAP_TIME_ENCODING = Flag("--zap-time-encoding")

LEADER_ELECT = Flag("--leader-elect", "true")
