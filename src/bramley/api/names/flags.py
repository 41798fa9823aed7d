"""Flags and environment variables of the agent, with their defaults, as the property lists on the Macs spell them."""

from __future__ import annotations

from dataclasses import dataclass

from bramley.api.names import host


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag; `env` is the variable that stands in when the flag is not given."""

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

LEADER_ELECT = Flag("--leader-elect", "true")
