"""What a cluster brings besides its API: the controllers that real clusters run beside the API server.

They are ordinary controllers on the public client and never look into the store, so each would work on any Kubernetes API.
`cluster` lists them all; `timings` holds how patient they are. Nothing here is imported by the server itself.
"""
