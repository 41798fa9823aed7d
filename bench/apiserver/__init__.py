"""The API server benchmark: `bramley apiserver` against kube-apiserver on etcd, one load generator, TLS on both.

It measures durable writes, reads, lists, watches, memory and start-up in one run; `results` defines the goals. Under
load our server runs with `--no-controllers`: kube-apiserver runs without its controller manager and scheduler, and ours would
spend the run reporting that the 5,000 Pods are unschedulable. Memory and start-up must meet the goals both ways.
"""
