"""tart-kubelet: the agent that makes a Mac a Node and a Pod a fresh macOS VM."""
