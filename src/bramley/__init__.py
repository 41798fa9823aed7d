"""Bramley: a control plane for fleets of Apple-silicon Macs on Kubernetes."""

# Also in pyproject.toml, which a test compares: asking the installed package for it costs an agent a megabyte.
__version__ = "0.1.0"
