"""The Deployment controller: one ReplicaSet per template, scaled up and down as templates change.

`replica_counts` is the arithmetic of a rollout, `revisions` identifies and numbers templates, `rollout_status` calculates the
status, and `reconciler` makes the changes.
"""
