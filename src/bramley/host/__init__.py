"""Shaping a Mac from outside: facts, plan, ensure.

A file of `steps` makes commands from facts, `ensuring` has them done through a `connection`: over `ssh`, or on the simulated Mac.
Steps touch no machine themselves. Read `step` for what one is, and `sequence` for their order.
"""
