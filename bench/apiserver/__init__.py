"""The API server benchmark: `bramley apiserver` against kube-apiserver on etcd, one load generator, TLS on both.

It measures durable writes, reads, lists, watches, memory and start-up in one run; `results` says what the goals are.
"""
