"""The agent's footprint and its reactions: a real `tart-kubelet` on a simulated Mac, beside our server in a process of its own."""
