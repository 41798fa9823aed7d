"""What a response of Scaleway's API that is no success means, as an error of `base.errors`.

Only the texts that Scaleway documents for errors are shown, with the secret key hidden; the body of a success never is, because
it contains the passwords of hosts.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec

from bramley.base import errors
from bramley.base.secret import Secret, redact

DEFAULT_WAIT = timedelta(minutes=1)
MAX_WAIT = timedelta(hours=1)
_EXCERPT_LENGTH = 300
_REFUSALS: dict[int, type[errors.BramleyError]] = {
    400: errors.BadRequest,
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Conflict,
    410: errors.NotFound,
    422: errors.BadRequest,
}
_TRANSIENT_STATE = "transient_state"


def refusal(
    about: str, status: int, headers: Mapping[str, str], body: bytes, secret: Secret
) -> errors.BramleyError:
    """Return the error for a status that is not 2xx."""
    details = _object(body)
    shown = redact(_text(details), secret)[:_EXCERPT_LENGTH]
    message = f"{about}: status {status}" + (f": {shown}" if shown else "")
    if status == 429:
        return errors.RateLimited(message, after=_wait(headers, details))
    # A redirect is not followed: the secret key is for this server only.
    if status < 400 or status == 408 or status >= 500:
        return errors.ProviderUnavailable(message)
    if status == 409 and details.get("type") == _TRANSIENT_STATE:
        return errors.HostBusy(message)
    return _REFUSALS.get(status, errors.Refused)(message)


def undecodable(about: str, error: Exception) -> errors.ProviderUnavailable:
    """Return the error for a success that is not as documented; neither its body nor the library's text is shown."""
    return errors.ProviderUnavailable(f"{about}: undecodable response ({type(error).__name__})")


def _object(body: bytes) -> dict[str, Any]:
    try:
        decoded = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return decoded if isinstance(decoded, dict) else {}


def _text(details: Mapping[str, Any]) -> str:
    words = [str(details[key]) for key in ("message", "help_message") if details.get(key)]
    if details.get("type") == _TRANSIENT_STATE:
        words.append(f"the {details.get('resource')} is {details.get('current_state')}")
    listed = details.get("details")
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, dict):
            names = ("action", "resource", "argument_name", "reason", "help_message")
            words.append(" ".join(str(each[name]) for name in names if each.get(name)))
    return ": ".join(words)


def _wait(headers: Mapping[str, str], details: Mapping[str, Any]) -> timedelta:
    for text in (headers.get("Retry-After", ""), str(details.get("reset_seconds", ""))):
        if text.isascii() and text.isdecimal():
            seconds = min(int(text), MAX_WAIT.total_seconds())
            return max(timedelta(seconds=seconds), timedelta(seconds=1))
    return DEFAULT_WAIT
