"""The embedded API's store: durable objects, one revision counter, and watches without gaps.

Read `store.py` first, then `journal.py`. Everything here runs on the event loop's thread, except the writer thread of
`ThreadedJournal`, which owns the SQLite connection. No module outside this package may import sqlite3.
"""
