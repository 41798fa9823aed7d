"""The controller runtime compared with kopf and lightkube: reconciles per second, watch events per second, memory.

One process replays bytes that were encoded beforehand, on one core; each client is a separate process on the other.
"""
