"""Pods for tests of a guest's files and variables."""

from __future__ import annotations

from typing import Any

import msgspec

from bramley.api.pod import Pod


def a_pod(*, status: dict[str, Any] | None = None, **container: Any) -> Pod:
    body = {
        "metadata": {
            "name": "build",
            "namespace": "ns",
            "uid": "u-1",
            "labels": {"tuist.dev/runner-pool": "large"},
            "annotations": {"example.com/a": "b"},
        },
        "spec": {
            "nodeName": "mac",
            "serviceAccountName": "runner",
            "containers": [{"name": "vm", "image": "macos", **container}],
        },
        "status": status or {},
    }
    return msgspec.convert(body, Pod)
