"""Makes the agent's archives for Macs, and those of this Linux machine: `python -m tools.agent_bundle --help`.

It brings in what comes from outside, an interpreter's file and wheels, each checked by hash before it is read; how a
tree becomes an archive is known to `bramley.app.agent_bundle`.
"""
