"""Configuration of a Mac from outside: facts, plan, converge.

A file of `steps` computes commands from facts; `converge` executes them through a `connection`, over `ssh` or on the simulated Mac.
Steps access no machine themselves. Read `step` for their protocol, and `sequence` for their order.
"""
