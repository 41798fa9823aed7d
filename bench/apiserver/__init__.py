"""The API server benchmark: `bramley apiserver` against kube-apiserver on etcd, one load generator, TLS on both.

It measures durable writes, reads, lists, watches, memory and start-up in one run; `results` says what the goals are. Under
load our server runs with `--no-controllers`: the rival runs without its controller manager and scheduler, and ours would
spend the run telling why it finds no Node for the 5,000 Pods. Memory and start-up are held to the goals both ways.
"""
