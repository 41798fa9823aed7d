"""What every layer may use: errors, clocks, backoff, deadlines, logs, metrics, secrets.

Nothing here opens a socket, a file or a process, and nothing here depends on Kubernetes.
"""
