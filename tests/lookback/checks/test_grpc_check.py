"""The check over gRPC: the generic service by its name, and nothing but a clear answer."""

import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from lookback.check import Answer, Checker, CheckReply
from message.ids import new_id
from simulator.servers.certificates import Authority
from tests.harness.proxy import Proxy
from tests.lookback.checks.conftest import ROOT, Business

Businesses = Callable[..., Business]
Checks = Callable[..., Checker]


def test_a_clear_answer_is_taken_with_its_fence(business: Businesses, checks: Checks) -> None:
    checker = checks(f"grpc://127.0.0.1:{business('grpc', 'honest').port}")
    reply = checker.check("order", "订单 1001", new_id())
    assert reply == CheckReply(Answer.COMMIT, fenced=True)


@pytest.mark.parametrize(
    "behaviour",
    ["other_id", "broken", "slow", "future_state", "garbage", "over_long", "bare", "unknown"],
)
def test_anything_else_is_unknown_with_its_reason(
    behaviour: str, business: Businesses, checks: Checks
) -> None:
    checker = checks(f"grpc://127.0.0.1:{business('grpc', behaviour).port}")
    begun = time.monotonic()

    reply = checker.check("order", "1001", new_id())

    assert reply.answer is Answer.UNKNOWN
    assert 0 < len(reply.detail) <= 200
    assert time.monotonic() - begun < 4


def test_another_secret_is_refused_by_the_business(business: Businesses, checks: Checks) -> None:
    checker = checks(f"grpc://127.0.0.1:{business('grpc', 'honest').port}", secret="another")
    assert "UNAUTHENTICATED" in checker.check("order", "1001", new_id()).detail


def test_a_question_without_a_signature_needs_a_business_that_asks_for_none(
    business: Businesses, checks: Checks
) -> None:
    url = f"grpc://127.0.0.1:{business('grpc', 'unsigned').port}"
    assert checks(url, secret="").check("order", "1001", new_id()).answer is Answer.COMMIT


def test_a_certificate_of_nobody_known_is_refused(
    business: Businesses, checks: Checks, authority: Authority
) -> None:
    pem = str(authority.certificate("localhost"))
    url = f"grpcs://localhost:{business('grpc', 'honest', pem).port}"

    assert checks(url).check("order", "1001", new_id()).answer is Answer.UNKNOWN
    trusted = checks(url, ca_file=str(authority.file))
    assert trusted.check("order", "1001", new_id()).answer is Answer.COMMIT


class Swallow(Proxy):
    """Loses the answers on the connections of before `swallow`, and leaves them open."""

    dead: frozenset[socket.socket] = frozenset()

    def swallow(self) -> None:
        self.dead = frozenset(self._open)

    def _pump(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if not (answers and source in self.dead):
                    target.sendall(data)


def test_a_connection_that_is_open_and_dead_is_left(business: Businesses, checks: Checks) -> None:
    """gRPC asked on it for as long as the process lived, and no check was answered any more."""
    with Swallow("127.0.0.1", business("grpc", "honest").port) as proxy:
        checker = checks(f"grpc://127.0.0.1:{proxy.port}", timeout_s=0.3)
        assert checker.check("order", "1001", new_id()).answer is Answer.COMMIT
        proxy.swallow()
        answers = [checker.check("order", "1001", new_id()).answer for _ in range(4)]
    assert answers == [*[Answer.UNKNOWN] * 3, Answer.COMMIT]


@pytest.mark.parametrize("made", ["check_pb2.py", "check_pb2.pyi"])
def test_the_stubs_are_those_of_the_proto_file(made: str, tmp_path: Path) -> None:
    proto = "hongyan_client/lookback/check.proto"
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", f"--python_out={tmp_path}"]
    subprocess.run([*command, f"--pyi_out={tmp_path}", proto], cwd=ROOT, check=True)

    fresh = (tmp_path / "hongyan_client" / "lookback" / made).read_text()

    assert (ROOT / "hongyan_client" / "lookback" / made).read_text() == fresh
