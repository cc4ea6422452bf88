"""Whom we trust: the public certificate authorities, and those an account adds."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import certifi


class Trust:
    """Bundle files for libcurl: certifi's own, or one that has an account's authorities as well.

    A file rather than bytes, because libcurl keeps a parsed file between connections and parsing
    costs milliseconds. The folder of merged bundles is removed by `close`.
    """

    def __init__(self, bundle: str = "") -> None:
        self._bundle = bundle or certifi.where()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.with_extra = cache(self._merge)
        """Path of the bundle that also holds the authorities in the given PEM file; raises OSError
        when that cannot be read."""

    def close(self) -> None:
        """Remove what was merged. Idempotent."""
        if self._folder is not None:
            self._folder.cleanup()

    def _merge(self, extra: str) -> str:
        if not extra:
            return self._bundle
        text = Path(self._bundle).read_text("utf-8") + "\n" + Path(extra).read_text("utf-8")
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="hongyan-ca-")
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", suffix=".pem", dir=self._folder.name, delete=False
        ) as file:
            file.write(text)
        return file.name
