"""The controllers' engine: informers, work queues, controllers, finalizers, status, events, leader election, probes.

It knows no word of any domain. Read `controller` for how a controller is said, `worker` for what happens to one key,
`informer` for how the cache stays true, and `manager` for how all of it starts and stops.
"""
