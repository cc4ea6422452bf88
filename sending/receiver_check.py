"""Checks, before a notification is produced, that accounts of hongyan.toml can send it.

The checks are the worker's own: its sentence about an unknown account, the reach of accounts, and each
adapter's `refusal`. A notification is refused only if every account of its channel refuses it: the worker
might use any of them. If hongyan.toml has no account of the channel, nothing is checked. Workers check
again with their own accounts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from channels.accounts.reach import Reach
from channels.channel import Account, Channel
from message.delivery import Delivery, Rendered, deliveries_of
from message.envelope import EnvelopeError, Notification, check_account
from message.keys import normalise_receiver
from message.receivers import CHATS, GROUP, group_of

CODE: Final = "unreachable"
_ABOUT_RECEIVERS: Final = frozenset(
    {
        *("bad_address", "bad_mobile", "bad_number", "bad_openid", "bad_receiver", "bad_userid"),
        *("ambiguous_number", "wrong_group", "wrong_receiver"),
    }
)
"""Codes with which an adapter refuses a receiver; its other codes are about the content."""


class KnownAccount(NamedTuple):
    """An account of hongyan.toml; `account` is None if its adapter cannot be asked without secrets."""

    account: Account | None
    channel: Channel
    reach: Reach


class ReceiverCheck:
    """Reads accounts, without their secrets, at first need."""

    def __init__(self, tables: Mapping[str, Mapping[str, Any]]) -> None:
        self._tables = tables
        self._known: dict[str, dict[str, KnownAccount]] = {}

    def __call__(self, notification: Notification, rendered: Rendered | None = None) -> None:
        """Raises EnvelopeError for the first receiver that no account can send to, AccountError for a
        robot's account that names no group. `rendered`: the notification after a template of ours."""
        accounts = self._of(notification)
        if not accounts:
            return
        if notification.channel in CHATS:
            _check_reach(notification, {name: one.reach for name, one in accounts.items()})
        for delivery in deliveries_of(notification, b"", expires_at=0):
            delivery.rendered = rendered
            _check_delivery(delivery, accounts)

    def _of(self, notification: Notification) -> Mapping[str, KnownAccount]:
        """Returns the accounts that may send it: the named one, or all of its channel. Raises EnvelopeError
        if it names another."""
        from channels.registry import serves

        channel, named, lane = notification.channel, notification.account, notification.lane
        if channel not in self._known:
            self._known[channel] = {
                name: _known_account(name, table)
                for name, table in self._tables.items()
                if serves(str(table.get("provider", "")), lane)
            }
        accounts = self._known[channel]
        if accounts:
            check_account(notification, lane, accounts)
        return accounts if named is None or not accounts else {named: accounts[named]}


def _known_account(name: str, table: Mapping[str, Any]) -> KnownAccount:
    from channels.registry import PROVIDERS, account_without_secrets, reach_of

    channel = PROVIDERS[str(table["provider"])]
    return KnownAccount(account_without_secrets(name, table), channel, reach_of(name, table))


def _check_reach(notification: Notification, reaches: Mapping[str, Reach]) -> None:
    for number, receiver in enumerate(notification.receivers):
        group = group_of(notification.channel, receiver)
        if not any(reach.takes(group) for reach in reaches.values()):
            why = _sentence(notification.channel, reaches, person=group is None)
            raise EnvelopeError(CODE, f"$.receivers[{number}]", why)


def _check_delivery(delivery: Delivery, accounts: Mapping[str, KnownAccount]) -> None:
    """Raises EnvelopeError with the first account's refusal if all refuse."""
    from sending.adapter_refusals import refusal_of

    first = ""
    for known in accounts.values():
        if known.account is None:
            return
        refused = refusal_of(delivery, known.account, known.channel)
        if not refused:
            return
        first = first or refused
    code, _, detail = first.partition(": ")
    raise EnvelopeError(code, _place(delivery, code), detail or code)


def _place(delivery: Delivery, code: str) -> str:
    notification = delivery.notification
    if code not in _ABOUT_RECEIVERS:
        return "$.content" if notification.template is None else "$.template"
    written = [normalise_receiver(notification.channel, one) for one in notification.receivers]
    return f"$.receivers[{written.index(delivery.receiver)}]"


def _sentence(channel: str, reaches: Mapping[str, Reach], *, person: bool) -> str:
    found = ", ".join(f"{name} reaches {reach}" for name, reach in sorted(reaches.items()))
    if person:
        write = f"a group is written {GROUP}NAME, and a person needs an application's account"
    else:
        write = f"write {GROUP} and the name that a robot's account gives as `group`, or add that account"
    return f"no account of {channel} reaches it ({found}); {write}"
