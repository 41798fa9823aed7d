"""ReplicaSets: as many Pods as are wanted, no more and no fewer.

`claiming` says which Pods are a ReplicaSet's own, `ranking` which of them go first, `counting` what its status says, and
`reconciler` does it.
"""
