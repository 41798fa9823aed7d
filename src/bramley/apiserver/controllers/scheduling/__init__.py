"""The scheduler: gives each Pod that waits a Node, or says per Node why not.

`scheduler` is the controller. What it decides is pure: `facts` and `rooms` are what is known of Pods and Nodes, `filters` say
where a Pod may go, `scores` where it should, `choosing` puts both together, `preempting` finds who would have to leave.
"""
