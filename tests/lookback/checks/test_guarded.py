"""Addresses, the cap and the breaker of one endpoint."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from backends.check_settings import check_settings
from backends.literal_secrets import FileText
from backends.settings import SettingsError
from hongyan_client.lookback.identity import TransactionRef
from lookback.check import Answer, Checker, CheckReply
from lookback.checks.errors import CheckFailed, CheckNotMade
from lookback.checks.guarded import POLICY, GuardedCheck

NAMES = ("order", "1001", "0192f3c47b1a7cc0a1b2c3d4e5f60718")


class Scripted:
    """Answers as it was told last; None is a failure."""

    def __init__(self) -> None:
        self.reply: CheckReply | None = CheckReply(Answer.COMMIT)
        self.asked = 0
        self.reached = threading.Semaphore(0)
        self.may_answer = threading.Event()
        self.may_answer.set()

    def ask(self, ref: TransactionRef) -> CheckReply:
        self.asked += 1
        self.reached.release()
        self.may_answer.wait(10)
        if self.reply is None:
            raise CheckFailed("it answered 500")
        return self.reply


def test_a_failure_is_unknown() -> None:
    business = Scripted()
    business.reply = None
    assert GuardedCheck(business, 1).check(*NAMES) == CheckReply(Answer.UNKNOWN, "it answered 500")


def test_an_endpoint_that_hangs_holds_no_more_than_its_threads() -> None:
    business = Scripted()
    business.may_answer.clear()
    guarded = GuardedCheck(business, 2)
    with ThreadPoolExecutor(2) as threads:
        held = [threads.submit(guarded.check, *NAMES) for _ in range(2)]
        for _ in held:
            assert business.reached.acquire(timeout=10)
        with pytest.raises(CheckNotMade, match="fill"):
            guarded.check(*NAMES)
        business.may_answer.set()
        assert {one.result().answer for one in held} == {Answer.COMMIT}
    assert business.asked == 2
    assert guarded.check(*NAMES).answer is Answer.COMMIT


def test_an_endpoint_that_fails_is_left_alone_for_a_while_and_then_probed() -> None:
    business, clock = Scripted(), [100.0]
    business.reply = None
    guarded = GuardedCheck(business, 1, now=lambda: clock[0])
    for _ in range(POLICY.min_calls):
        guarded.check(*NAMES)

    with pytest.raises(CheckNotMade, match="breaker") as caught:
        guarded.check(*NAMES)
    assert business.asked == POLICY.min_calls
    assert caught.value.wait_s == pytest.approx(POLICY.open_ms / 1_000)

    clock[0] += caught.value.wait_s
    business.reply = CheckReply(Answer.COMMIT)
    assert guarded.check(*NAMES).answer is Answer.COMMIT
    assert guarded.check(*NAMES).answer is Answer.COMMIT


def test_a_business_that_does_not_know_is_no_failure() -> None:
    business = Scripted()
    business.reply = CheckReply(Answer.UNKNOWN, "the business does not know")
    guarded = GuardedCheck(business, 1)
    for _ in range(3 * POLICY.min_calls):
        assert guarded.check(*NAMES).answer is Answer.UNKNOWN


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("http://orders.example.com/check", "plaintext"),
        ("grpc://orders.example.com:443", "plaintext"),
        ("grpcs://orders.example.com", "a host and a port"),
        ("grpcs://orders.example.com:443/check", "a host and a port"),
        ("ftp://orders.example.com", "must be a full"),
        ("https://user:secret@orders.example.com", "user name"),
        ("", "is missing"),
    ],
)
def test_a_wrong_address_is_refused_before_anything_starts(
    url: str, fault: str, checks: Callable[..., Checker]
) -> None:
    with pytest.raises(SettingsError, match=rf"lookback\.checks\.orders\.url: .*{fault}"):
        checks(url)


def test_plaintext_is_taken_where_the_network_is_said_to_be_encrypted(
    checks: Callable[..., Checker],
) -> None:
    assert checks("http://orders.example.com/check", plaintext=True) is not None


def test_a_wrong_key_is_named() -> None:
    with pytest.raises(SettingsError, match=r"lookback\.checks\.orders: .*`tmeout_s`"):
        check_settings("orders", {"url": "https://a.example", "tmeout_s": 1})


def test_a_secret_in_the_file_itself_is_refused() -> None:
    with pytest.raises(SettingsError, match="HONGYAN_LOOKBACK__CHECKS__ORDERS__SECRET"):
        check_settings("orders", {"url": "https://a.example", "secret": FileText("s")})
