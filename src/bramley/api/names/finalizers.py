"""Finalizers, and the condition for their removal."""

from __future__ import annotations

# On Pods, by the agent: the VM is gone from the Mac.
VM_CLEANUP = "tart-kubelet.tuist.dev/vm-cleanup"
# On RunnerPools, by the pool controller: no busy Pod is left.
POOL_DRAIN = "tuist.dev/runner-pool-drain"
# On machines, by the provider: the Mac is back in the pool.
MACHINE = "scalewayapplesilicon.cluster.x-k8s.io/finalizer"
# On MacHosts, by the provider: everything is removed from the Mac.
MAC_HOST = "tuist.dev/mac-host-cleanup"
