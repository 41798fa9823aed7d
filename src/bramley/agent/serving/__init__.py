"""What the agent serves over HTTPS, as a kubelet does: logs, and what its VMs use."""
