"""The kubelet endpoints of the agent: container logs, stats and resource metrics over HTTPS."""
