"""An agent's identity: where it lives, how its objects are called, and what ties it to its Node.

The tie is the name. Whoever may create ServiceAccounts or tokens in this namespace makes agents, so nothing else lives there.
"""

from __future__ import annotations

from bramley.api.names import agent

NAMESPACE = "bramley-agents"

# Shared by all agents: the ClusterRole, the policy and its binding.
CLUSTER_ROLE = "bramley-agent"
POLICY = "bramley-agent-writes"

# On everything that belongs to one agent: the mark to select by, and the Node, whose name may be too long for a label.
LABEL = "tuist.dev/agent-access"
LABEL_VALUE = "true"
NODE = "tuist.dev/agent-node"

# A verb that no server acts on: an agent may do it with exactly the Pods that are bound to its Node.
REPRESENT = "represent"

# Lease of the process that keeps the Roles of agents.
LEASE = "agent-access.bramley.tuist.dev"

# What a server says of a token in the user's extra.
TOKEN_NODE = "authentication.kubernetes.io/node-name"  # noqa: S105 - the name of a key

# An agent's user name is this with the name of its Node.
USER_PREFIX = f"system:serviceaccount:{NAMESPACE}:{agent.service_account('')}"


def role(node: str) -> str:
    """Return the name of an agent's own roles and bindings."""
    return f"{CLUSTER_ROLE}:{node}"


def enrolment(node: str) -> str:
    """Return the name of the binding that makes a ServiceAccount the agent of a Node."""
    return f"{CLUSTER_ROLE}-enrolment:{node}"


# Every name of an agent's objects holds that of its Node and has to fit.
LONGEST_NODE = 253 - max(len(name("")) for name in (agent.service_account, role, enrolment))
