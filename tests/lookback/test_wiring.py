"""The endpoints of a configuration, a check that was not made, and the health page."""

import threading
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, cast

import pytest

from backends.lookback_settings import LookbackSettings
from backends.settings import Settings, SettingsError
from channels.transports import TransportRouter
from lookback.check import Answer, Checker, CheckReply
from lookback.checks.errors import CheckNotMade
from lookback.checks.factory import open_checks
from lookback.consumer import ConsumerParts, LookbackConsumer
from lookback.scheduler import asked
from lookback.wiring import LookbackLoops, _health
from message.ids import new_id
from sending.runtime.threads import ThreadGroup


def opened(checks: dict[str, dict[str, Any]]) -> set[str]:
    settings = Settings(lookback=LookbackSettings(checks=checks))
    with ExitStack() as stack:
        sender = TransportRouter()
        stack.callback(sender.close)
        return set(open_checks(settings.lookback.checks, sender, stack))


def test_each_endpoint_has_its_checker() -> None:
    checks = {"a": {"url": "https://a.example/check"}, "b": {"url": "grpcs://b.example:443"}}
    assert opened(checks) == {"a", "b"}
    assert opened({}) == set()


def test_a_wrong_endpoint_is_named() -> None:
    with pytest.raises(SettingsError, match=r"lookback\.checks\.a\.url"):
        opened({"a": {"url": "http://a.example/check"}})


class Busy:
    """An endpoint that asks nobody."""

    def check(self, biz_type: str, biz_id: str, tx_id: str) -> CheckReply:
        raise CheckNotMade("the endpoint's breaker is open", 5.0)


def test_a_check_that_was_not_made_is_told_apart() -> None:
    checker: Checker = Busy()
    row: Any = type("Row", (), {"biz_type": "order", "biz_id": "1", "tx_id": new_id()})
    reply = asked(checker, row)
    assert reply == CheckReply(Answer.UNKNOWN, "the endpoint's breaker is open", made=False)


def test_readyz_gives_the_reason_while_no_dead_letter_is_taken() -> None:
    taking = LookbackConsumer(cast(ConsumerParts, None), "look_back_msg", 1)
    taking.assigned = True
    loops = cast(LookbackLoops, SimpleNamespace(consumer=taking))
    health = _health(loops, ThreadGroup(), threading.Event())
    assert health.ready()[0]
    taking.held = "hongyan.dead takes no dead letters (TOPIC_AUTHORIZATION_FAILED)"
    assert health.ready() == (False, {"reason": taking.held, "missing_topics": []})
