"""Python's garbage collector in a process that holds large caches.

Objects from the API are frozen and without cycles, so counting references frees them. The collector still walks through all
of them again and again, because new ones keep coming; told to be calm, it costs next to nothing of the watch's time.
"""

from __future__ import annotations

import gc

# Allocations more than frees before a collection of the young, such collections before one of the middle-aged, and so on.
THRESHOLDS = (20_000, 20, 20)


def calm() -> None:
    """Let the collector look at new objects more rarely; call it when the process starts."""
    gc.set_threshold(*THRESHOLDS)


def set_aside() -> None:
    """Let the collector never look at what is there now; call it when the caches are filled."""
    gc.freeze()
