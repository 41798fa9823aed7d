"""Small controllers of Cluster API's core kinds, for the embedded API; on a real cluster the core manager does their work.

`controllers` adds them to a manager. `replicas`, `machine_decision` and `drain` decide and are pure; the reconcilers of
`clusters`, `machine_deployments`, `machine_sets` and `machines` observe and write.
"""
