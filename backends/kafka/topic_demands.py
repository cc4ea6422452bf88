"""Compares an existing topic with its plan. Pure functions, for `hongyan topics apply` and doctor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

AT_LEAST: Final = ("min.insync.replicas", "max.message.bytes", "retention.ms", "retention.bytes")
"""Keys whose value may be larger than planned; -1 is no limit."""
EXACTLY: Final = ("cleanup.policy", "unclean.leader.election.enable", "compression.type")
REPLICATION: Final = "replication.factor"
ALL_IN_SYNC: Final = "min.insync.replicas of all"
"""A topic whose every copy must have a record: one broker down refuses all writes."""
_NO_LIMIT: Final = -1


class TopicPlan(msgspec.Struct, frozen=True):
    """The wanted state of one topic."""

    name: str
    partitions: int
    replication: int
    config: dict[str, str]


class Shortfall(NamedTuple):
    """One setting in which a topic falls short of its plan."""

    key: str
    found: str
    wanted: str
    remedy: str
    """The command that mends it."""


def shortfalls(plan: TopicPlan, replication: int, config: Mapping[str, str]) -> list[Shortfall]:
    """Returns the settings in which the topic falls short. Keys that may not be read are left out."""
    return [*_copies(plan, replication, config), *_settings(plan, config)]


def alter(topic: str, key: str, value: str) -> str:
    """Returns the command that sets one key of a topic. Lists stand in brackets, as the tool wants it."""
    written = f"[{value}]" if "," in value else value
    return f"kafka-configs.sh --alter --topic {topic} --add-config {key}={written}"


def _copies(plan: TopicPlan, replication: int, config: Mapping[str, str]) -> list[Shortfall]:
    found = []
    if replication < plan.replication:
        remedy = (
            f"kafka-reassign-partitions.sh --execute, with {plan.replication} brokers for each"
            f" partition of {plan.name}"
        )
        found.append(Shortfall(REPLICATION, str(replication), str(plan.replication), remedy))
    in_sync = int(config.get("min.insync.replicas", 0))
    if 1 < replication <= in_sync:
        wanted = str(max(1, replication - 1))
        remedy = alter(plan.name, "min.insync.replicas", wanted)
        found.append(Shortfall(ALL_IN_SYNC, str(in_sync), wanted, remedy))
    return found


def _settings(plan: TopicPlan, config: Mapping[str, str]) -> list[Shortfall]:
    short = [
        key
        for key in AT_LEAST
        if key in config and key in plan.config and _less(config[key], plan.config[key])
    ]
    other = [
        key for key in EXACTLY if key in config and config[key] != plan.config.get(key, config[key])
    ]
    return [
        Shortfall(key, config[key], plan.config[key], alter(plan.name, key, plan.config[key]))
        for key in (*short, *other)
    ]


def _less(found: str, wanted: str) -> bool:
    if int(found) == _NO_LIMIT:
        return False
    return int(wanted) == _NO_LIMIT or int(found) < int(wanted)
