"""A file of notifications, one JSON object a line, with a progress bar on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from hongyan.enqueue import BadLine, Check, Ready, Render, read_lines
from hongyan.errors import WrongUsage
from hongyan.terminal import err


def checked_lines(file: Path, bad: list[BadLine], render: Render, check: Check) -> Iterator[Ready]:
    """Yields the good lines of the file, or of standard input for `-`. Adds the bad ones to `bad`. Raises
    WrongUsage for a file that cannot be read."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    bar = Progress(
        TextColumn("sending"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[lines]:,} lines"),
        console=err(),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with _opened(file) as source, bar:
        size = None if source is sys.stdin.buffer else file.stat().st_size or None  # 0: a pipe
        task = bar.add_task("", total=size, lines=0)

        def lines() -> Iterator[bytes]:
            for number, line in enumerate(source, 1):
                bar.update(task, advance=len(line), lines=number)
                yield line

        yield from read_lines(lines(), bad, render=render, check=check)


@contextmanager
def _opened(file: Path) -> Iterator[BinaryIO]:
    if str(file) == "-":
        yield sys.stdin.buffer
        return
    try:
        source = file.open("rb")
    except OSError as exc:
        raise WrongUsage(f"{file}: {exc.strerror}; give a file of JSON lines") from exc
    with source:
        yield source
