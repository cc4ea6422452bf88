"""The frame of a command that serves: signals, settings, and a log in which every line is an event."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import typer

from backends.open_files import raise_open_files
from backends.signals import stopped_by_signals
from hongyan.errors import judged
from hongyan.terminal import PROBLEMS, USAGE, settings_of
from hongyan.usage.extras import sentence_for

if TYPE_CHECKING:
    import threading

    from backends.settings import LogSettings, Settings


class Served(NamedTuple):
    """Settings and stop of a command that serves."""

    settings: Settings
    stop: threading.Event


@contextmanager
def serving(context: typer.Context, process: str) -> Iterator[Served]:
    """Yields the settings and the event that SIGTERM sets. `process` is in each event of the log. With
    `log.format = "json"` an error that ends the process is an event, too. Raises typer.Exit for it. The
    process may open as many files as the machine lets it."""
    raise_open_files()
    with stopped_by_signals() as stop:
        from backends.library_output import lossy_output
        from backends.logs import identified

        with lossy_output(), identified(process=process):
            settings = settings_of(context, quiet=False)
            with _logged(settings.log):
                yield Served(settings, stop)


@contextmanager
def _logged(log: LogSettings) -> Iterator[None]:
    """Makes the output of libraries, the stacks at SIGUSR1 and the last error events of the log."""
    from backends.library_output import library_output
    from backends.stack_dump import stacks_on_signal

    with library_output(log), stacks_on_signal():
        try:
            yield
        except typer.Exit:
            raise
        except Exception as exc:
            if log.format != "json":
                raise
            raise typer.Exit(_ended(exc)) from exc


def _ended(exc: Exception) -> int:
    """Logs the error that ends the process. Returns the exit code."""
    import structlog

    log = structlog.get_logger(__name__)
    sentence = sentence_for(exc)
    expected = (sentence, USAGE) if sentence else judged(exc)
    if expected is None:
        log.error("unforeseen", cause=repr(exc), exc_info=exc)
        return PROBLEMS
    text, code = expected
    log.error("ended", text=text)
    return code
