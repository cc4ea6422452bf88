"""The common part of the incoming webhooks of Slack, Discord, Mattermost and Teams.

Credentials of each: `hook` (the address behind the protocol's name, query and all) and `group` (the
receiver's name in the ledger). Each keeps to the provider's documented pace (behaviour `limits`: "off"
takes any number). `<protocol>.mentions` counts the mentions of a message, by rules written apart from the
adapter's.
"""

from __future__ import annotations

import hashlib
from typing import Any, ClassVar, Final

import msgspec

from simulator.protocols._windows import KeyedWindows
from simulator.servers.http_request import Request
from simulator.wire import OneReceiver, ProtocolContext, ReceivedCall, Recipient, Reply

TEXT: Final = [("Content-Type", "text/plain; charset=utf-8")]


class HookProtocol(OneReceiver):
    """Its state is the last messages, for the limits."""

    hook: ClassVar[str]
    """Default of the credential `hook`."""
    paces: ClassVar[tuple[tuple[int, int], ...]]
    """(messages, seconds) that a webhook takes."""

    def __init__(self, world: ProtocolContext) -> None:
        super().__init__(world)
        self._limits = KeyedWindows(world, self.name, *self.paces)

    def at_hook(self, request: Request) -> bool:
        """Returns whether the request is for the webhook of the credentials."""
        target = request.target.decode("ascii", "replace")
        return target == f"/{self.name}/{self.world.credential(self.name, 'hook', self.hook)}"

    def too_many(self) -> bool:
        """Takes a place in the window. Returns True if there was none."""
        return self._limits.over(self.hook)

    def send(self, message: dict[str, Any], mentions: int) -> ReceivedCall:
        """Counts the mentions. Returns the call to the one receiver."""
        for _ in range(mentions):
            self.world.count(f"{self.name}.mentions")
        digest = hashlib.sha256(msgspec.json.encode(message, order="deterministic")).hexdigest()[
            :16
        ]
        group = self.world.credential(self.name, "group", "group")
        return ReceivedCall([Recipient(group, f"{self.name}:{digest}")])


def texts(tree: Any) -> list[str]:
    """Returns every text in a structure."""
    if isinstance(tree, str):
        return [tree]
    inner = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    return [text for one in inner for text in texts(one)]


def plain(status: int, text: str, *fields: tuple[str, str]) -> Reply:
    """Returns an answer of plain text."""
    return Reply(text.encode(), status, [*TEXT, *fields])
