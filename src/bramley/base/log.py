"""Structured logs on top of the standard library: a constant message and key-value pairs.

`logger = log.get(__name__)`, then `logger.info("Creating pod", pod=name, reason="gap")`. Values bound with `bound(…)`,
such as the reconcile id, are added to every line logged inside. A terminal gets aligned text, anything else one JSON object
per line.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
import sys
import traceback
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, TextIO

import msgspec

_NOTHING: Mapping[str, object] = MappingProxyType({})
_bound: contextvars.ContextVar[Mapping[str, object]] = contextvars.ContextVar(
    "bound",
    default=_NOTHING,
)

_COLOURS = {logging.DEBUG: "2", logging.INFO: "36", logging.WARNING: "33", logging.ERROR: "31"}


@contextlib.contextmanager
def bound(**fields: object) -> Iterator[None]:
    """Add these values to every line that is logged inside, also by callees."""
    token = _bound.set({**_bound.get(), **fields})
    try:
        yield
    finally:
        _bound.reset(token)


class Logger:
    """Logs a constant message with values as keyword arguments."""

    __slots__ = ("_logger",)

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def debug(self, message: str, **fields: object) -> None:
        """Log details for developers."""
        self._emit(logging.DEBUG, message, fields)

    def info(self, message: str, **fields: object) -> None:
        """Log normal operation."""
        self._emit(logging.INFO, message, fields)

    def warning(self, message: str, **fields: object) -> None:
        """Log what an operator should check eventually."""
        self._emit(logging.WARNING, message, fields)

    def error(self, message: str, *, exc: BaseException | None = None, **fields: object) -> None:
        """Log what an operator should check at once."""
        self._emit(logging.ERROR, message, fields, exc)

    def _emit(
        self, level: int, message: str, fields: dict[str, object], exc: BaseException | None = None
    ) -> None:
        if self._logger.isEnabledFor(level):
            extra = {"fields": {**_bound.get(), **fields}}
            self._logger.log(level, message, extra=extra, exc_info=exc, stacklevel=3)


def get(name: str) -> Logger:
    """Return the logger of a module."""
    return Logger(logging.getLogger(name))


class JsonLines(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Render time, level, logger, message, fields and, if there is one, the traceback."""
        line: dict[str, Any] = {
            "time": _timestamp(record).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {key: value for key, value in _fields(record).items() if key not in line}
        if record.exc_info and record.exc_info[1]:
            line["exception"] = "".join(traceback.format_exception(record.exc_info[1]))
        return msgspec.json.encode(line, enc_hook=str).decode()


class Readable(logging.Formatter):
    """Aligned text with colours, for terminals."""

    def __init__(self, *, colours: bool) -> None:
        super().__init__()
        self._colours = colours

    def format(self, record: logging.LogRecord) -> str:
        """Render one line of time, level, message and key=value fields, then the traceback if there is one."""
        fields = " ".join(f"{key}={_quoted(value)}" for key, value in _fields(record).items())
        level = self._colourize(f"{record.levelname.lower():<7}", record.levelno)
        line = f"{_timestamp(record):%H:%M:%S} {level} {record.getMessage():<38} {fields}".rstrip()
        if record.exc_info and record.exc_info[1]:
            line += "\n" + "".join(traceback.format_exception(record.exc_info[1])).rstrip()
        return line

    def _colourize(self, text: str, level: int) -> str:
        return f"\x1b[{_COLOURS.get(level, '31')}m{text}\x1b[0m" if self._colours else text


def configure(*, level: str = "info", form: str = "auto", stream: TextIO | None = None) -> None:
    """Send this process's logs to one stream, as `readable` or `json`; `auto` means readable on a terminal."""
    out = stream or sys.stderr
    readable = out.isatty() if form == "auto" else form == "readable"
    handler = logging.StreamHandler(out)
    handler.setFormatter(Readable(colours=out.isatty()) if readable else JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def _fields(record: logging.LogRecord) -> Mapping[str, object]:
    fields: Mapping[str, object] = getattr(record, "fields", {})
    return fields


def _timestamp(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _quoted(value: object) -> str:
    # A newline in a value must not forge a second log line.
    text = str(value)
    plain = text.isprintable() and " " not in text and text
    return text if plain else msgspec.json.encode(text).decode()
