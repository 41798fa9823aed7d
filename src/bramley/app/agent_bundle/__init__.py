"""Makes the agent's two archives, the interpreter and the code, so that equal inputs give equal bytes.

`pair` makes those of this Linux machine, which tests and simulated Macs install; `tools/agent_bundle` makes those of Macs from
the same parts. Nothing here is needed to install an archive, and nothing here touches the network.
"""
