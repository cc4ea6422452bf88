"""nghttp2's own server and clients, the reference implementation of HTTP/2 in C: the distribution's
packages, unpacked and never installed."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.foreign.judges_folder import unpacked_judge
from tests.foreign.loopback import all_answer, free_port
from tests.services import give_up

PACKAGES: Final = ("nghttp2-server", "nghttp2-client", "libev4")
_LIMIT_S: Final = 60
_REQUEST = re.compile(r"recv HEADERS frame .*?\n", re.DOTALL)
_DATA = re.compile(r"recv DATA frame <length=(\d+)")


class Nghttpd:
    """A running server that sends back what it is sent; leaving it ends it by its id."""

    def __init__(self, *options: str, certificate: str = "") -> None:
        """`options`: as nghttpd takes them. `certificate`: a PEM file with key and chain; empty: no TLS."""
        self.port = free_port()
        self._tls = bool(certificate)
        self._log = tempfile.NamedTemporaryFile(prefix="nghttpd-", suffix=".log")  # noqa: SIM115 (closed below)
        flags = ["--verbose", "--echo-upload", "--address=127.0.0.1", *options]
        port = (
            [str(self.port), certificate, certificate]
            if certificate
            else ["--no-tls", str(self.port)]
        )
        self._command = [program("nghttpd"), *flags, *port]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, env=environment(), stdout=self._log, stderr=self._log
        )
        if not all_answer(self._process, [self.port]):
            self.stop()
            give_up(f"nghttpd did not start: {self.said()[-500:]}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            print(self.said()[-3_000:])
        self.stop()
        self._log.close()

    @property
    def url(self) -> str:
        return f"{'https://localhost' if self._tls else 'http://127.0.0.1'}:{self.port}/hook"

    def stop(self) -> None:
        """End it. Idempotent."""
        self._process.terminate()
        self._process.wait(10)

    def said(self) -> str:
        """Its log: every frame that it read and wrote."""
        return Path(self._log.name).read_text("utf-8", "replace")

    def requests(self) -> int:
        """Requests that it read."""
        return len(_REQUEST.findall(self.said()))

    def received(self) -> int:
        """Bytes of DATA that it read."""
        return sum(int(size) for size in _DATA.findall(self.said()))


def run(name: str, *arguments: str) -> str:
    """What a client of nghttp2's prints; fails where it fails."""
    done = subprocess.run(
        [program(name), *arguments],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def program(name: str) -> str:
    """One of the programs. Skips the test where it cannot be had, and fails it where everything must be."""
    for package in PACKAGES:
        found = [
            one for one in _root(package).rglob(name) if one.is_file() and one.stat().st_mode & 1
        ]
        if found:
            return str(found[0])
    give_up(f"there is no {name} in {', '.join(PACKAGES)}")
    raise AssertionError


def environment() -> dict[str, str]:
    """With the library that the packages bring along."""
    libraries = {str(one.parent) for one in _root("libev4").rglob("libev.so.4")}
    return {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": ":".join(sorted(libraries))}


def _root(package: str) -> Path:
    return unpacked_judge(package)
