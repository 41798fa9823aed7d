"""Simulated peers: programs and machines that answer as the real ones do, as processes and under virtual time."""
