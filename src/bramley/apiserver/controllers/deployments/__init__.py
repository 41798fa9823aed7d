"""Deployments: Pods of a template that may change, by way of one ReplicaSet for each template.

`amounts` is the arithmetic of a rollout, `revisions` tells templates apart and numbers them, `conditions` says how it goes,
and `reconciler` does it.
"""
