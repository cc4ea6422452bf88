"""Businesses in processes of their own, and the checks that ask them."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from channels.transports import TransportRouter
from lookback.check import Checker
from lookback.checks.factory import open_checks
from simulator.servers.certificates import Authority
from tests.lookback.checks.business import SECRET

ROOT = Path(__file__).parents[3]


class Business:
    """One process of tests/lookback/checks/business.py."""

    def __init__(self, kind: str, behaviour: str, pem: str = "") -> None:
        module = "tests.lookback.checks.business"
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, kind, behaviour, *([pem] if pem else [])],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        self._said = self._process.stdout
        self.port = int(self._said.readline())

    def question(self) -> dict[str, Any]:
        """Returns the next question that came over HTTP."""
        found: dict[str, Any] = json.loads(self._said.readline())
        return found

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._said.close()


@pytest.fixture
def business() -> Iterator[Callable[..., Business]]:
    with ExitStack() as stack:

        def started(kind: str, behaviour: str, pem: str = "") -> Business:
            found = Business(kind, behaviour, pem)
            stack.callback(found.stop)
            return found

        yield started


@pytest.fixture
def checks() -> Iterator[Callable[..., Checker]]:
    with ExitStack() as stack:
        sender = TransportRouter()
        stack.callback(sender.close)

        def opened(url: str, **options: Any) -> Checker:
            table = {"url": url, "secret": SECRET, "timeout_s": 1.0} | options
            return open_checks({"orders": table}, sender, stack)["orders"]

        yield opened


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)
