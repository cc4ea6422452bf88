"""Whom we trust: the public certificate authorities, and those an account adds."""

from __future__ import annotations

import tempfile
import threading
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
        self._merging = threading.Lock()
        self._merged = cache(self._merge)

    def with_extra(self, extra: str) -> str:
        """Path of the bundle that also holds the authorities in the PEM file `extra`, if any.

        Raises OSError when that cannot be read. Many threads may ask at once; one merges.
        """
        if not extra:
            return self._bundle
        with self._merging:
            return self._merged(extra)

    def close(self) -> None:
        """Remove what was merged. Idempotent."""
        if self._folder is not None:
            self._folder.cleanup()

    def _merge(self, extra: str) -> str:
        pem = Path(self._bundle).read_bytes() + b"\n" + Path(extra).read_bytes()
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="hongyan-ca-")
        with tempfile.NamedTemporaryFile(
            suffix=".pem", dir=self._folder.name, delete=False
        ) as file:
            file.write(pem)
        return file.name
