"""The process of `bramley apiserver`."""

from __future__ import annotations

import gc

from bramley.app.apiserver import start_garbage_collector


def test_serving_process_collects_its_garbage() -> None:
    gc.disable()
    try:
        start_garbage_collector()
        assert gc.isenabled()
    finally:
        gc.unfreeze()
        gc.enable()
