"""The program through its own entry, as a shell would call it, in this process."""

from __future__ import annotations

import io
import sys
import threading
from contextlib import redirect_stderr, redirect_stdout

import pytest

from hongyan import terminal
from hongyan.cli import main


class OfThisThread(io.StringIO):
    """Keeps what its maker's thread writes: clients that other tests left behind may log meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self._owner = threading.get_ident()

    def write(self, text: str) -> int:
        return super().write(text) if threading.get_ident() == self._owner else len(text)


def said(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, str]:
    """Exit code and all that is written, as `hongyan` would in a shell."""
    terminal.out.cache_clear()
    terminal.err.cache_clear()
    monkeypatch.setattr(terminal, "_origins", {})
    monkeypatch.setattr(sys, "argv", ["hongyan", *arguments])
    written = OfThisThread()
    with redirect_stdout(written), redirect_stderr(written), pytest.raises(SystemExit) as end:
        main()
    terminal.out.cache_clear()
    terminal.err.cache_clear()
    code = end.value.code
    return code if isinstance(code, int) else 0, written.getvalue()
