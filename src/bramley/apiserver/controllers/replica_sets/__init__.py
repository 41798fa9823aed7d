"""The ReplicaSet controller: keeps the desired number of Pods.

`controller_ref` adopts and releases Pods, `active_pods` ranks them for deletion and calculates the status, and `reconciler`
makes the changes.
"""
