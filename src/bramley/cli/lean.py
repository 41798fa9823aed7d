"""Keeps the agent small: two habits of its HTTP library cost three megabytes at import, and neither is of use to it.

The library loads every certificate authority of the system in case somebody needs them (the agent trusts its cluster's), and
a C++ runtime for one small list type that it also has in Python.
"""

from __future__ import annotations

import os

_FOR_A_MOMENT = {
    "SSL_CERT_FILE": os.devnull,
    "SSL_CERT_DIR": os.devnull,
    "FROZENLIST_NO_EXTENSIONS": "1",
}


def load_http() -> None:
    """Import the HTTP library without these; what the process sees and hands on is as before when this returns."""
    before = {name: os.environ.get(name) for name in _FOR_A_MOMENT}
    os.environ.update(_FOR_A_MOMENT)
    try:
        import bramley.kube.http  # noqa: F401 - loaded for what it loads
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
