"""The scheduler: assigns a Node to each pending Pod, or reports per Node why it cannot.

`scheduler` is the controller; `scheduler_cache` follows the API, `scheduling_queue` orders the pending Pods. The decision is
pure: `select_node` filters (`filters`), scores and preempts on a `snapshot` of `node_info` and `pod_info`.
"""
