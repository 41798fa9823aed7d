"""Modelled Macs for large fleets under virtual time: Nodes, Pods, pulls over one uplink, and jobs, without an agent or a VM.

Each part follows the rules of the real one (`agent`, and the dispatch server of existing fleets) at the level of API objects;
what happens inside a Mac is a duration. `hosts.ModelledHosts` is the entry point.
"""
