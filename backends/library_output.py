"""Turns what libraries print, warn of and let die into events of the log, so that every line is one.

kombu prints to standard error, uncaught errors of threads do, and so does the warnings module. Output that
C code writes to the file descriptor itself does not pass here; librdkafka has a logger of its own
(backends/kafka/client_logs.py).
"""

from __future__ import annotations

import io
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TextIO, cast

import structlog

from backends.logs import is_console
from backends.settings import LogSettings

log = structlog.get_logger(__name__)


class LossyStream(io.TextIOBase):
    """A text stream that loses what it cannot write, and raises nothing: a full disk, or a reader of the
    log that ended, ends no thread that logs an event."""

    def __init__(self, original: TextIO | None) -> None:
        """`original` is None if the process began without this stream."""
        super().__init__()
        self._original = original
        self.lost = original is None
        """Whether something was lost; written by any thread that writes."""

    def write(self, text: str) -> int:
        """See `TextIOBase.write`."""
        if self._original is not None:
            try:
                self._original.write(text)
            except (OSError, ValueError):  # ValueError: it is closed
                self.lost = True
        return len(text)

    def flush(self) -> None:
        """See `IOBase.flush`."""
        if self._original is not None:
            try:
                self._original.flush()
            except (OSError, ValueError):
                self.lost = True

    def writable(self) -> bool:
        """See `IOBase.writable`."""
        return True

    def isatty(self) -> bool:
        """Returns whether people read it."""
        return self._original is not None and self._original.isatty()

    def fileno(self) -> int:
        """Returns the descriptor of the stream behind it. Raises OSError without one."""
        return super().fileno() if self._original is None else self._original.fileno()


class LogStream(io.TextIOBase):
    """A text stream whose lines become events `output`. Any thread may write; each ends its own lines."""

    def __init__(self, name: str, level: int, original: TextIO) -> None:
        super().__init__()
        self._name = name
        self._level = level
        self._original = original
        self._begun = threading.local()

    def write(self, text: str) -> int:
        """See `TextIOBase.write`."""
        *lines, rest = (getattr(self._begun, "text", "") + text).split("\n")
        self._begun.text = rest
        for line in lines:
            self._log(line)
        return len(text)

    def flush(self) -> None:
        """Logs the begun line of this thread."""
        rest, self._begun.text = getattr(self._begun, "text", ""), ""
        self._log(rest)
        if not self._original.closed:
            self._original.flush()

    def writable(self) -> bool:
        """See `IOBase.writable`."""
        return True

    def fileno(self) -> int:
        """Returns the descriptor of the stream behind it."""
        return self._original.fileno()

    def _log(self, line: str) -> None:
        if line.strip():
            log.log(self._level, "output", stream=self._name, text=line.rstrip())


@contextmanager
def lossy_output() -> Iterator[None]:
    """Lets standard output and standard error lose what cannot be written. One that lost something stays so
    at the end, since the interpreter's last flush would turn the exit code into 120."""
    streams = sys.stdout, sys.stderr
    lossy = LossyStream(streams[0]), LossyStream(streams[1])
    sys.stdout, sys.stderr = cast("tuple[TextIO, TextIO]", lossy)
    try:
        yield
    finally:
        for one in lossy:
            one.flush()
        if not lossy[0].lost:
            sys.stdout = streams[0]
        if not lossy[1].lost:
            sys.stderr = streams[1]


@contextmanager
def library_output(settings: LogSettings) -> Iterator[None]:
    """Captures the output of libraries, where the log is JSON; restores everything at its end."""
    if is_console(settings, sys.stderr):
        yield
        return
    streams, hooks = (sys.stdout, sys.stderr), (sys.excepthook, threading.excepthook)
    unraisable = sys.unraisablehook
    sys.stdout = cast("TextIO", LogStream("stdout", logging.INFO, streams[0]))
    sys.stderr = cast("TextIO", LogStream("stderr", logging.WARNING, streams[1]))
    sys.excepthook, threading.excepthook = _uncaught, _thread_died
    sys.unraisablehook = _unraisable
    logging.captureWarnings(True)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        logging.captureWarnings(False)
        sys.unraisablehook = unraisable
        sys.excepthook, threading.excepthook = hooks
        sys.stdout, sys.stderr = streams


def _uncaught(
    _kind: type[BaseException], error: BaseException, _trace: TracebackType | None
) -> None:
    log.critical("uncaught", cause=repr(error), exc_info=error)


def _thread_died(args: threading.ExceptHookArgs) -> None:
    if args.exc_type is not SystemExit:
        name = args.thread.name if args.thread else ""
        error = args.exc_value
        log.error("thread_error", thread=name, cause=repr(error), exc_info=error)


def _unraisable(args: Any) -> None:
    where = repr(args.object)
    log.error("unraisable", where=where, cause=repr(args.exc_value), exc_info=args.exc_value)
