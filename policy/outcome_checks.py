"""Checks that hongyan.toml has the settings that a policy's outcome events need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from backends.settings import OutcomeSettings, Settings
from message.vocabulary import LANES
from policy.loading import read
from policy.parser import PolicyParser
from policy.problems import Problem
from policy.schema import OutcomeTarget, Policy

_LEAST: Final = 32
"""Characters of the hash key: with a shorter one receivers could be found by trial."""
_ANY: Final = {"hash_key": f"HONGYAN_OUTCOMES__HASH_KEY ({_LEAST} characters or more)"}
_OF_WEBHOOK: Final = {
    "webhook": "outcomes.webhook",
    "webhook_secret": "HONGYAN_OUTCOMES__WEBHOOK_SECRET",
}
"""Setting, and how to give it."""


def missing_settings(settings: OutcomeSettings, targets: Mapping[str, str]) -> str | None:
    """Returns one sentence about the settings that these lanes' events (lane to target) lack; None where
    nothing is missing."""
    for lane, target in targets.items():
        if lacking := _lacking(settings, target):
            return f"lane {lane}: {_sentence(target, lacking)}"
    return None


def check_outcomes(settings: Settings, policy: Policy, path: Path) -> list[Problem]:
    """Returns the lanes of the policy file whose events lack a setting; the file must be readable."""
    page = PolicyParser(str(path), read(path), None)
    places, found = page.places("outcomes"), set()
    for lane in LANES:
        target = policy.of(lane).outcomes
        if lacking := _lacking(settings.outcomes, target.value):
            found.add(page.problem(places[lane.name], _sentence(target.value, lacking)))
    return sorted(found)


def _lacking(settings: OutcomeSettings, target: str) -> list[str]:
    least = {"hash_key": _LEAST}
    return [h for key, h in _needed(target) if len(getattr(settings, key)) < least.get(key, 1)]


def _needed(target: str) -> Iterator[tuple[str, str]]:
    if target != OutcomeTarget.NONE:
        yield from _ANY.items()
    if target == OutcomeTarget.WEBHOOK:
        yield from _OF_WEBHOOK.items()


def _sentence(target: str, lacking: list[str]) -> str:
    named = ", ".join(lacking)
    return f'outcomes = "{target}" needs settings of [outcomes]: set {named}'
