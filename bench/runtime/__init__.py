"""The controller runtime beside its rivals: reconciles per second, watch events per second, memory.

One process replays bytes that were encoded beforehand, on one core; each contestant is a process of its own on the other.
"""
