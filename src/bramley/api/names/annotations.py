"""Annotations that are read or written across components."""

from __future__ import annotations

# Cluster API: pauses the reconciliation of this object.
PAUSED = "cluster.x-k8s.io/paused"

# On the fleet's SSH Secret: the id of the public key at the provider.
SSH_KEY_ID = "scaleway.tuist.dev/ssh-key-id"

# On the Lease of a rented Mac: its zone at the provider, and that its release has begun.
HOST_ZONE = "tuist.dev/host-zone"
HOST_RELEASING = "tuist.dev/host-releasing"

# On the Secret with the access to a Mac: the id of that Mac at the provider, and the namespace of its machine.
HOST_ID = "tuist.dev/host-id"
MACHINE_NAMESPACE = "tuist.dev/machine-namespace"

# On machines, by people: release the host and adopt another one; the same, and do not adopt that host again (the value is why);
# replace Tart once the host runs no VM. The manager removes them when they are carried out.
RELEASE_HOST = "tuist.dev/release-host"
QUARANTINE_HOST = "tuist.dev/quarantine-host"
REPLACE_TART = "tuist.dev/replace-tart"

# On MacHosts, by people: delete this one although its Mac cannot be reached or cleaned.
SKIP_CLEANUP = "tuist.dev/skip-cleanup"

# On Nodes: cordoned by the manager, which uncordons only those.
CORDONED_BY = "tuist.dev/cordoned-by"

# On Cluster API's Machines, as the value of its own annotation for scale-downs: the host runs no job.
IDLE = "idle"

# On a Deployment's Pod template: a hash of the fleet's ready Nodes, so that a change restarts the Pods.
FLEET_HASH = "tuist.dev/fleet-hash"

# On RunnerPools and their Pods: the revision of the runtime class that a Pod was made with.
RUNTIME_CLASS_REVISION = "tuist.dev/runtime-class-revision"

# On RunnerPools, by people: pause the roll ("true"), reject this image, or accept it without a trial.
ROLLOUT_PAUSED = "tuist.dev/rollout-paused"
ROLLOUT_UNDO = "tuist.dev/rollout-undo"
ROLLOUT_PROMOTE = "tuist.dev/rollout-promote"

# On runner Pods and their ServiceAccounts: slot and counter as "3/7", and why the Pod was created (see PendingPod).
RUNNER_SLOT = "tuist.dev/runner-slot"
CREATED_FOR = "tuist.dev/created-for"

# On runner Pods, by dispatch: the claim that the owner label was written for.
RUNNER_CLAIM = "tuist.dev/runner-claim"

# On Pods whose guest is scraped through the Node.
SCRAPE = "prometheus.io/scrape"
SCRAPE_PORT = "prometheus.io/port"

# On Pods: screen sharing with the guest; the first two are the request, the others its status.
VNC_SESSION_ID = "tuist.dev/vnc-session-id"
VNC_RELAY_TOKEN_HASH = "tuist.dev/vnc-relay-token-hash"  # noqa: S105 - the name of an annotation
VNC_STATE = "tuist.dev/vnc-state"
VNC_STATE_READY = "ready"
VNC_RELAY_HOST = "tuist.dev/vnc-relay-host"
VNC_RELAY_PORT = "tuist.dev/vnc-relay-port"
VNC_RELAY_READY_AT = "tuist.dev/vnc-relay-ready-at"

# On Nodes, as JSON: images to pull before a Pod needs them, and their status.
STAGE_IMAGES = "tuist.dev/stage-images"
STAGED_IMAGES = "tuist.dev/staged-images"

# On the egress Service of a Mac, for the Tailscale operator.
TAILNET_FQDN = "tailscale.com/tailnet-fqdn"
TAILNET_PROXY_GROUP = "tailscale.com/proxy-group"
