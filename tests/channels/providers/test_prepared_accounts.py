"""The parts that all requests of an account share are prepared once for all lanes of it."""

from collections.abc import Callable

import pytest

from channels.channel import Account
from channels.providers._common.sms import PerAccount
from channels.providers._common.wechat import PreparedAccounts
from channels.providers.webhook.adapter import WebhookChannel
from tests.channels.calls import account

KEPT: dict[str, Callable[[], Callable[[Account], object]]] = {
    "sms": lambda: PerAccount(lambda _: object()).get,
    "wechat": lambda: PreparedAccounts("cgi-bin/message/send").of,
    "webhook": lambda: WebhookChannel()._for,
}


@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)
def test_lanes_of_one_account_share_what_is_prepared(
    kept: Callable[[], Callable[[Account], object]],
) -> None:
    prepared = kept()
    first, second = account(token="s3cret"), account(token="s3cret")
    assert first is not second
    assert prepared(first) is prepared(second) is prepared(first)


@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)
def test_an_account_that_changed_is_prepared_anew(
    kept: Callable[[], Callable[[Account], object]],
) -> None:
    prepared = kept()
    before, after = account(token="s3cret"), account(token="another")
    assert prepared(before) is not prepared(after)
    assert prepared(account(token="another")) is prepared(after)
