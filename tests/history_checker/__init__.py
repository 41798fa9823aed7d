"""Judges a store by what its clients saw: calls with their times, lists, and watch streams.

Record a `history.History` while real clients work, then `verdict.judge` it. The clients must write by compare-and-set only
and give every write a unique value; then each object's life is one chain, and the checks are exact and fast.
"""
