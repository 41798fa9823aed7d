"""Builds the agent's two archives, the interpreter and the code, so that equal inputs give equal bytes.

`agent_archives` builds those of this Linux machine, which tests and simulated Macs install; `tools/agent_bundle` builds those
of Macs from the same modules. Nothing here is needed to install an archive, and nothing here uses the network.
"""
