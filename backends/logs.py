"""Logs: one event a line to standard error, for people on a terminal and as JSON elsewhere.

Possible secrets are blacked out here: values under suspicious keys, and credentials inside URLs.
Tracebacks come without local variables, since some of them hold tokens.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from io import StringIO
from traceback import walk_tb
from typing import Any, Final, TextIO

import structlog
from structlog.tracebacks import ExceptionDictTransformer

from backends.settings import LogSettings
from backends.url_passwords import HIDDEN as HIDDEN
from backends.url_passwords import hide_passwords

_SECRET_KEY = re.compile(
    r"pass(word|wd|phrase)?$|secret|token|authorization|credential|api_?key|private_?key|payload_key|hash_key|cookie"
    r"|key\.pem$",
    re.IGNORECASE,
)
_URL_QUERY = re.compile(
    r"(?P<head>[?&][a-z_-]*(?:token|secret|key|sign|signature|password|passwd|passphrase)=)[^&\s\"']+",
    re.IGNORECASE,
)
"""Some providers put them there: WeCom's corpsecret, WeChat's access_token, a robot's key."""
_DEPTH: Final = 5
_FRAMES: Final = 8
_HEAD: Final = ("time", "level", "event")
_identity: dict[str, str] = {}
"""Fields of every event of this process; written by `identified`."""


def configure(settings: LogSettings, *, quiet: bool = False, stream: TextIO | None = None) -> None:
    """Sets up structlog and the logs of libraries. `quiet`, for short commands: warnings only."""
    stream = stream or sys.stderr
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    if quiet and level == logging.INFO:
        level = logging.WARNING
    structlog.configure(
        processors=_processors(is_console(settings, stream), colors=stream.isatty()),
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=stream),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=max(level, logging.WARNING), handlers=[LibraryLog()], force=True)


@contextmanager
def identified(**fields: str) -> Iterator[None]:
    """Adds these fields to every event of the process, such as `worker`."""
    global _identity
    before, _identity = _identity, {**_identity, **fields}
    try:
        yield
    finally:
        _identity = before


class LibraryLog(logging.Handler):
    """Turns each record of a library into one event among ours. Any thread may call `emit`."""

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler.emit`."""
        error = record.exc_info if record.exc_info and record.exc_info[0] else None
        structlog.get_logger().log(
            record.levelno, "library", logger=record.name, text=record.getMessage(), exc_info=error
        )


def where(exc: BaseException) -> list[str]:
    """Returns the innermost frames as `file:line in function`, for exceptions whose text may quote a
    message."""
    frames = [
        f"{frame.f_code.co_filename}:{line} in {frame.f_code.co_name}"
        for frame, line in walk_tb(exc.__traceback__)
    ]
    return frames[-_FRAMES:]


def is_console(settings: LogSettings, stream: TextIO) -> bool:
    """Returns whether events are for people, not JSON."""
    return stream.isatty() if settings.format == "auto" else settings.format == "console"


def _processors(console: bool, *, colors: bool) -> list[Any]:
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        _identify,
        structlog.processors.add_log_level,
    ]
    if console:
        stamp = structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False)
        console_renderer = structlog.dev.ConsoleRenderer(
            colors=colors, pad_event_to=28, exception_formatter=_traceback
        )
        return [*shared, redact, stamp, console_renderer]
    return [
        *shared,
        structlog.processors.TimeStamper(fmt="iso", key="time"),
        structlog.processors.ExceptionRenderer(ExceptionDictTransformer(show_locals=False)),
        redact,  # after the line above: the texts of exceptions have URLs, too
        _head_first,
        structlog.processors.JSONRenderer(ensure_ascii=False),
    ]


def _traceback(stream: TextIO, exc_info: Any) -> None:
    """Writes a traceback as structlog does, with its secrets blacked out."""
    written = StringIO()
    structlog.dev.plain_traceback(written, exc_info)
    stream.write(_text(written.getvalue()))


def _identify(
    _logger: object, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Adds the fields of the process; an event's own fields win."""
    return {**_identity, **event}


def _head_first(
    _logger: object, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Puts time, level and event first."""
    return {**{key: event.pop(key) for key in _HEAD if key in event}, **event}


def redact(
    _logger: object, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Blacks out secrets in an event, at any depth."""
    for key, value in event.items():
        event[key] = _shown(key, value, _DEPTH)
    return event


def blacked_out(key: str, value: Any) -> Any:
    """Returns a setting's value for people: `***` under a telling key, URLs without their login."""
    return _shown(key, value, _DEPTH)


def _shown(key: str, value: Any, depth: int) -> Any:
    if _SECRET_KEY.search(key) and value not in (None, "", 0):
        return HIDDEN
    if isinstance(value, str):
        return _text(value)
    if depth and isinstance(value, Mapping):
        return {k: _shown(str(k), v, depth - 1) for k, v in value.items()}
    if depth and isinstance(value, list | tuple):
        return [_shown("", v, depth - 1) for v in value]
    return value


def _text(value: str) -> str:
    value = hide_passwords(value)
    return _URL_QUERY.sub(rf"\g<head>{HIDDEN}", value) if "=" in value else value
