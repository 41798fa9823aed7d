"""Footprint and latencies of the agent: a real `tart-kubelet` on a simulated Mac, with our server in another process."""
