"""A real Kubernetes control plane for tests and benchmarks, built from the Go modules under `go/`.

It owns the binaries' cache, the certificates, the processes and their stop. It knows nothing of Bramley's own servers and
ships in no package. By hand: `python -m tools.kube up`; in tests: the fixture `real_cluster`; see docs/how-to/real-control-plane.md.
"""

from tools.kube.go_build import missing

__all__ = ["missing"]
