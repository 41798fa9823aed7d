from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from bramley.base import errors
from bramley.kube import status


class Noon:
    def now(self) -> datetime:
        return datetime(2026, 1, 1, 12, tzinfo=UTC)

    def monotonic(self) -> float:
        return 0.0


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        (400, "BadRequest", errors.BadRequest),
        (401, "Unauthorized", errors.Unauthorized),
        (401, "", errors.Unauthorized),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (405, "MethodNotAllowed", errors.BadRequest),
        (408, "", errors.TimedOut),
        (409, "AlreadyExists", errors.AlreadyExists),
        (409, "Conflict", errors.Conflict),
        (409, "", errors.Conflict),
        (410, "Gone", errors.Gone),
        (410, "Expired", errors.Gone),
        (413, "RequestEntityTooLarge", errors.BadRequest),
        (415, "UnsupportedMediaType", errors.BadRequest),
        (422, "Invalid", errors.InvalidSpec),
        (429, "TooManyRequests", errors.RateLimited),
        (302, "", errors.BadRequest),
        (500, "InternalError", errors.ApiUnavailable),
        (500, "ServerTimeout", errors.ApiUnavailable),
        (502, "", errors.ApiUnavailable),
        (503, "ServiceUnavailable", errors.ApiUnavailable),
        (504, "Timeout", errors.TimedOut),
        (507, "", errors.ApiUnavailable),
    ],
)
def test_every_status_code_has_its_error(
    code: int, reason: str, expected: type[errors.BramleyError]
) -> None:
    found = status.error("GET /x", status.Status(code=code, reason=reason, message="why"))

    assert type(found) is expected
    assert str(found) == f"GET /x: why ({code})"


def test_invalid_carries_every_field() -> None:
    causes = [{"field": "spec.os", "reason": "FieldValueInvalid", "message": "no"}]
    body = msgspec.json.encode({"code": 422, "reason": "Invalid", "details": {"causes": causes}})

    found = status.error("POST /x", status.parse(body))

    assert isinstance(found, errors.InvalidSpec)
    assert found.causes == (errors.Cause("spec.os", "FieldValueInvalid", "no"),)


def test_refusal_has_its_causes() -> None:
    cause = {"reason": "NamespaceTerminating", "field": "metadata.namespace", "message": "it goes"}
    body = {"code": 403, "reason": "Forbidden", "details": {"causes": [cause]}}

    error = status.error("POST /x", status.parse(msgspec.json.encode(body)))

    assert isinstance(error, errors.Forbidden)
    assert [one.reason for one in error.causes] == ["NamespaceTerminating"]


def test_retry_after_comes_from_the_header_the_details_or_a_default() -> None:
    parsed = status.parse(b'{"code": 429, "details": {"retryAfterSeconds": 7}}')
    untold = status.Status(code=429)

    by_header = status.error("x", parsed, wait=timedelta(seconds=3))
    by_details = status.error("x", parsed)
    by_default = status.error("x", untold)

    assert [getattr(error, "after", None) for error in (by_header, by_details, by_default)] == [
        timedelta(seconds=3),
        timedelta(seconds=7),
        status.DEFAULT_WAIT,
    ]


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("12", 12),
        (" 0 ", 0),
        ("Thu, 01 Jan 2026 12:00:30 GMT", 30),
        ("Thu, 01 Jan 2026 11:00:00 GMT", 0),
        ("9" * 400, status.MAX_WAIT_SECONDS),
        ("soon", None),
        ("-5", None),
        ("", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(header: str, seconds: float | None) -> None:
    expected = None if seconds is None else timedelta(seconds=seconds)
    assert status.retry_after({"retry-after": header}, Noon()) == expected


def test_a_body_that_is_no_status_is_shown_bounded() -> None:
    found = status.error("GET /x", status.parse(b"<html>" + b"x" * 100_000), code=502)

    assert isinstance(found, errors.ApiUnavailable)
    assert "<html>" in str(found)
    assert len(str(found)) < 3000


@pytest.mark.parametrize("body", [b"", b"\xff\xfe", b"[" * 100_000, b'{"code": "x"}', b"null"])
def test_any_error_body_is_parsed(body: bytes) -> None:
    assert isinstance(status.error("GET /x", status.parse(body), code=503), errors.ApiUnavailable)
