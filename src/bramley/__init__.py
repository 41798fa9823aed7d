"""Bramley: a control plane for fleets of Apple-silicon Macs on Kubernetes."""
