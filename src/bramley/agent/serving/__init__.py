"""The kubelet's HTTPS endpoints."""
