"""The identity of an agent: its namespace and the names of its objects, which bind it to its Node.

Every subject that may create ServiceAccounts or tokens in this namespace can create agents, so it contains nothing else.
"""

from __future__ import annotations

from bramley.api.names import agent

NAMESPACE = "bramley-agents"

# Shared by all agents: the ClusterRole, the policy and its binding.
CLUSTER_ROLE = "bramley-agent"
POLICY = "bramley-agent-writes"

# On all objects of an agent: the label to select by, and the Node as annotation, because its name may be too long for a label.
LABEL = "tuist.dev/agent-access"
LABEL_VALUE = "true"
NODE = "tuist.dev/agent-node"

# On the ServiceAccount, as annotations: the configured labels and taints that the agent registers its Node with.
NODE_LABELS = "tuist.dev/node-labels"
REGISTER_TAINTS = "tuist.dev/register-taints"

# A custom verb: an agent is authorized for it on exactly the Pods that are bound to its Node.
REPRESENT = "represent"

# The lease of the process that maintains the Roles of agents.
LEASE = "agent-access.bramley.tuist.dev"

# A key in the `extra` of a token's user.
TOKEN_NODE = "authentication.kubernetes.io/node-name"  # noqa: S105 - the name of a key

# An agent's user name is this with the name of its Node.
USER_PREFIX = f"system:serviceaccount:{NAMESPACE}:{agent.service_account('')}"


def role(node: str) -> str:
    """Return the name of an agent's own roles and bindings."""
    return f"{CLUSTER_ROLE}:{node}"


def enrolment(node: str) -> str:
    """Return the name of the binding that makes a ServiceAccount the agent of a Node."""
    return f"{CLUSTER_ROLE}-enrolment:{node}"


# The names of an agent's objects contain the name of its Node and must not exceed 253 characters.
MAX_NODE_LENGTH = 253 - max(len(name("")) for name in (agent.service_account, role, enrolment))
