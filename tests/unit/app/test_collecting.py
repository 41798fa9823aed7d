"""Garbage is collected while a server serves, though not while it starts."""

from __future__ import annotations

import gc

from bramley.app.apiserver import begin_collecting


def test_serving_process_collects_its_garbage() -> None:
    gc.disable()
    try:
        begin_collecting()
        assert gc.isenabled()
    finally:
        gc.unfreeze()
        gc.enable()
