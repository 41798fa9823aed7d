"""The controllers of kube-controller-manager and kube-scheduler that the embedded cluster needs.

They use the public client only and never access the store, so each of them works on any Kubernetes API. `cluster` lists them
all; `timings` has their periods and thresholds. The server itself imports nothing from here.
"""
