"""The controllers' engine: informers, work queues, controllers, events, leader election, probes.

It contains no domain logic. Read `controller` for how a controller is declared, `worker` and `outcome` for how a key is
processed and requeued, `informer` and `cache` for how the cache follows the server, and `manager` for start and stop.
"""
