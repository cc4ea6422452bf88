"""Checks, before a notification is produced, that accounts of hongyan.toml reach its receivers.

Checks only channels with group receivers, and only if hongyan.toml has accounts of the channel. Workers
check again with their own accounts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from channels.accounts.reach import Reach
from message.envelope import EnvelopeError, Notification
from message.receivers import CHATS, GROUP, group_of

CODE = "unreachable"


class ReachCheck:
    """Reads accounts, without their secrets, at first need."""

    def __init__(self, tables: Mapping[str, Mapping[str, Any]]) -> None:
        self._tables = tables
        self._known: dict[str, dict[str, Reach]] = {}

    def __call__(self, notification: Notification) -> None:
        """Raises EnvelopeError for the first receiver that cannot be reached, AccountError for a robot's
        account that names no group."""
        if notification.channel not in CHATS:
            return
        reaches = self._of(notification)
        if not reaches:
            return
        for number, receiver in enumerate(notification.receivers):
            group = group_of(notification.channel, receiver)
            if not any(reach.takes(group) for reach in reaches.values()):
                why = _sentence(notification.channel, reaches, person=group is None)
                raise EnvelopeError(CODE, f"$.receivers[{number}]", why)

    def _of(self, notification: Notification) -> Mapping[str, Reach]:
        """Returns the accounts that may send it: the named one, or all of its channel."""
        from channels.registry import reach_of, serves

        channel, named = notification.channel, notification.account
        if channel not in self._known:
            self._known[channel] = {
                name: reach_of(name, table)
                for name, table in self._tables.items()
                if serves(str(table.get("provider", "")), notification.lane)
            }
        reaches = self._known[channel]
        if named is None:
            return reaches
        return {named: reaches[named]} if named in reaches else {}


def _sentence(channel: str, reaches: Mapping[str, Reach], *, person: bool) -> str:
    found = ", ".join(f"{name} reaches {reach}" for name, reach in sorted(reaches.items()))
    if person:
        write = f"a group is written {GROUP}NAME, and a person needs an application's account"
    else:
        write = f"write {GROUP} and the name that a robot's account gives as `group`, or add that account"
    return f"no account of {channel} reaches it ({found}); {write}"
