"""What every layer may lean on: errors, clocks, backoff, logs, metrics, secrets.

Nothing here opens a socket, a file or a process, and nothing here knows a Kubernetes word.
"""
