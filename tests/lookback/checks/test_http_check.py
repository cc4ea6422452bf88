"""The check over HTTP: a clear answer of a real server is taken, and nothing else."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from channels.channel import Failure
from channels.http_client.failures import BadRequest
from lookback.check import Answer, Checker, CheckReply
from lookback.checks.errors import CheckNotMade
from lookback.checks.factory import open_checks
from lookback.checks.guarded import POLICY
from message.ids import new_id
from simulator.servers.certificates import Authority
from tests.lookback.checks.business import HOSTILE
from tests.lookback.checks.conftest import Business

Businesses = Callable[..., Business]
Checks = Callable[..., Checker]


def test_a_clear_answer_is_taken_with_its_fence(business: Businesses, checks: Checks) -> None:
    checker = checks(f"http://127.0.0.1:{business('http', 'honest').port}/check")

    reply = checker.check("order", "订单 1001&x=1", new_id())

    assert reply == CheckReply(Answer.COMMIT, fenced=True)


def test_the_question_names_the_transaction_and_is_signed(
    business: Businesses, checks: Checks
) -> None:
    asked, tx_id = business("http", "honest"), new_id()
    checks(f"http://127.0.0.1:{asked.port}/check?tenant=7").check("order", "1001", tx_id)

    question = asked.question()

    method, target, _ = question["target"].split(" ")
    wanted = {"tenant": ["7"], "biz_type": ["order"], "biz_id": ["1001"], "tx_id": [tx_id]}
    assert method == "GET"
    assert urlsplit(target).path == "/check"
    assert parse_qs(urlsplit(target).query) == wanted
    assert question["headers"]["Hongyan-Signature"].startswith("v1=")


@pytest.mark.parametrize("behaviour", HOSTILE)
def test_anything_else_is_unknown_with_its_reason(
    behaviour: str, business: Businesses, checks: Checks
) -> None:
    checker = checks(f"http://127.0.0.1:{business('http', behaviour).port}/check")
    begun = time.monotonic()

    reply = checker.check("order", "1001", new_id())

    assert reply.answer is Answer.UNKNOWN
    assert 0 < len(reply.detail) <= 200
    assert time.monotonic() - begun < 4


def test_a_redirect_is_not_followed(business: Businesses, checks: Checks) -> None:
    asked = business("http", "redirect")
    checker = checks(f"http://127.0.0.1:{asked.port}/check")

    checker.check("order", "1001", new_id())
    checker.check("order", "1002", new_id())

    assert "biz_id=1001" in asked.question()["target"]
    assert "biz_id=1002" in asked.question()["target"]  # and no question for /elsewhere between


def test_a_business_that_does_not_know_says_why(business: Businesses, checks: Checks) -> None:
    reply = checks(f"http://127.0.0.1:{business('http', 'unknown').port}/").check(
        "order", "1001", new_id()
    )
    assert reply == CheckReply(
        Answer.UNKNOWN, "the business does not know: the order is being paid"
    )


def test_another_secret_is_refused_by_the_business(business: Businesses, checks: Checks) -> None:
    checker = checks(f"http://127.0.0.1:{business('http', 'honest').port}/", secret="another")
    assert "401" in checker.check("order", "1001", new_id()).detail


def test_with_plaintext_an_address_without_tls_is_asked(
    business: Businesses, checks: Checks
) -> None:
    asked = business("http", "honest")  # 127.1 is this machine, but not one of its known names
    checker = checks(f"http://127.1:{asked.port}/check", plaintext=True)
    assert checker.check("order", "1001", new_id()) == CheckReply(Answer.COMMIT, fenced=True)


class Refusing:
    """A transport that puts no request on the wire."""

    def send(self, request: httpx.Request) -> httpx.Response | Failure:
        raise BadRequest("the request holds a line break")


def test_a_request_that_is_refused_before_any_call_is_no_check_and_no_failure() -> None:
    table = {"orders": {"url": "https://orders.example.com/check"}}
    with ExitStack() as stack:
        checker = open_checks(table, Refusing(), stack)["orders"]
        for _ in range(2 * POLICY.min_calls):
            with pytest.raises(CheckNotMade, match="line break"):  # never the breaker's
                checker.check("order", "1001", new_id())


def test_nobody_there_is_unknown(business: Businesses, checks: Checks) -> None:
    gone = business("http", "honest")
    gone.stop()
    reply = checks(f"http://127.0.0.1:{gone.port}/").check("order", "1001", new_id())
    assert reply.answer is Answer.UNKNOWN


def test_a_certificate_of_nobody_known_is_refused(
    business: Businesses, checks: Checks, authority: Authority
) -> None:
    pem = str(authority.certificate("localhost"))
    url = f"https://localhost:{business('http', 'honest', pem).port}/"

    assert checks(url).check("order", "1001", new_id()).answer is Answer.UNKNOWN
    trusted = checks(url, ca_file=str(authority.file))
    assert trusted.check("order", "1001", new_id()).answer is Answer.COMMIT
