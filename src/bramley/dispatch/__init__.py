"""Dispatch: the durable queue of GitHub jobs, which pool and Pod gets which job, and the signals computed from it.

`jobs.py`, `pool_matching.py` and `fair_share.py` are pure; `store/` keeps the queue in SQLite or PostgreSQL.
"""
