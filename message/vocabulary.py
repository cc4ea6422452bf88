"""Channels, kinds and lanes: the closed sets that topics, pools and policies are named after."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

CHANNELS: Final = (
    "sms",
    "email",
    "wechat_official",
    "wechat_mini",
    "wecom",
    "dingtalk",
    "feishu",
    "chat",
    "push",
    "webhook",
)
KINDS: Final = ("verification", "notice", "marketing")
DEFAULT_TTL_MS: Final = {"verification": 300_000, "notice": 86_400_000, "marketing": 86_400_000}
"""Time to live by kind, where neither the policy nor the message has one."""
DEFAULT_TOPIC_PREFIX: Final = "hongyan"
_PATTERN = re.compile(r"[a-z_*?]+\.[a-z_*?]+|\*")


class LanePatternError(ValueError):
    """A lane pattern that names nothing; the text names it and the possible ones."""


class Lane(NamedTuple):
    """One channel × kind: one topic, one bounded pool, one policy."""

    channel: str
    kind: str

    @property
    def name(self) -> str:
        """`sms.verification`, as in policy, metrics and the ledger."""
        return f"{self.channel}.{self.kind}"

    def topic(self, prefix: str = DEFAULT_TOPIC_PREFIX) -> str:
        """Returns the dispatch topic of this lane."""
        return f"{prefix}.dispatch.{self.channel}.{self.kind}"

    def fits(self, pattern: str) -> bool:
        """Returns whether a shell-style pattern (`sms.*`, `*.notice`, `*`) names this lane."""
        return pattern == "*" or fnmatchcase(self.name, pattern)


LANES: Final = tuple(Lane(channel, kind) for channel in CHANNELS for kind in KINDS)
_LANES_BY_NAME = {lane.name: lane for lane in LANES}


def lane_named(name: str) -> Lane | None:
    """Returns the lane of that name; None where there is none."""
    return _LANES_BY_NAME.get(name)


def lane_of_topic(topic: str, prefix: str = DEFAULT_TOPIC_PREFIX) -> Lane | None:
    """Returns the lane of this dispatch topic; None for any other topic."""
    head = f"{prefix}.dispatch."
    return _LANES_BY_NAME.get(topic[len(head) :]) if topic.startswith(head) else None


def lanes_matching(patterns: Iterable[str]) -> tuple[Lane, ...]:
    """Returns the lanes that any of the shell-style patterns (`sms.*`, `*.notice`, `*`) names.

    Raises LanePatternError for a pattern that names no lane: a worker that silently serves
    nothing would look healthy.
    """
    chosen: set[Lane] = set()
    for pattern in patterns:
        found = {lane for lane in LANES if lane.fits(pattern)}
        if not _PATTERN.fullmatch(pattern) or not found:
            raise LanePatternError(
                f"no lane matches {pattern!r}: write CHANNEL.KIND with * and ?, where channel is "
                f"one of {', '.join(CHANNELS)} and kind one of {', '.join(KINDS)}"
            )
        chosen |= found
    return tuple(lane for lane in LANES if lane in chosen)


def dead_letter_topic(prefix: str = DEFAULT_TOPIC_PREFIX) -> str:
    """Returns the topic of poison messages."""
    return f"{prefix}.dead"


def outcome_topic(prefix: str = DEFAULT_TOPIC_PREFIX) -> str:
    """Returns the topic of outcome events."""
    return f"{prefix}.outcomes"


def trace_topic(prefix: str = DEFAULT_TOPIC_PREFIX) -> str:
    """Returns the topic of trace events."""
    return f"{prefix}.trace"
