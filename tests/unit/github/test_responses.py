from __future__ import annotations

import pytest

from bramley.base import errors
from bramley.github.responses import JobPage, decoded


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"\xff", b"<html>", b'{"jobs": 1}', b'{"jobs": [], "x": ' + b"[" * 200_000],
)
def test_other_body_is_unavailable(body: bytes) -> None:
    with pytest.raises(errors.GitHubUnavailable, match="GET /x: invalid response"):
        decoded(body, JobPage, "GET /x")
