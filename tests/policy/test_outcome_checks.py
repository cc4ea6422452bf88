"""Lanes with outcomes: the settings they need, and where a missing one is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backends.settings import OutcomeSettings, PolicySettings, Settings
from policy.loading import PolicyError, load
from policy.outcome_checks import check_outcomes, missing_settings
from policy.schema import LanePolicy, OutcomeTarget, Policy

KEY = "k" * 32
POLICY = """
[defaults]
outcomes = "topic"

[lanes."sms.notice"]
outcomes = "webhook"

[lanes."sms.marketing"]
outcomes = "none"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "policy.toml"
    path.write_text(POLICY)
    return path


def settings(file: Path, **outcomes: Any) -> Settings:
    return Settings(policy=PolicySettings(file=str(file)), outcomes=OutcomeSettings(**outcomes))


def test_by_default_no_lane_is_announced() -> None:
    assert Policy().announced == {}
    one = Policy(lanes={"sms.notice": LanePolicy(outcomes=OutcomeTarget.TOPIC)})
    assert one.announced == {"sms.notice": "topic"}


def test_every_place_that_lacks_a_setting_is_named_with_its_line(file: Path) -> None:
    found = check_outcomes(settings(file), load(file), file)
    assert [(problem.line, problem.key) for problem in found] == [
        (3, "defaults.outcomes"),
        (6, 'lanes."sms.notice".outcomes'),
    ]
    assert "HONGYAN_OUTCOMES__HASH_KEY" in found[0].text
    assert "outcomes.webhook, HONGYAN_OUTCOMES__WEBHOOK_SECRET" in found[1].text


@pytest.mark.parametrize(
    ("text", "places"),
    [
        (
            '[defaults]\nthreads = 4\n[lanes."sms.*"]\noutcomes = "topic"\n',
            [(4, 'lanes."sms.*".outcomes')],
        ),
        (
            '[lanes."*"]\noutcomes = "topic"\n[lanes."sms.notice"]\noutcomes = "webhook"\n',
            [(2, "lanes.*.outcomes"), (4, 'lanes."sms.notice".outcomes')],
        ),
        (
            '[defaults]\noutcomes = "topic"\n[lanes]\n"sms.*" = { outcomes = "webhook" }\n',
            [(2, "defaults.outcomes"), (4, 'lanes."sms.*".outcomes')],
        ),
    ],
)
def test_a_pattern_that_lacks_a_setting_is_named_once_with_its_line(
    file: Path, text: str, places: list[tuple[int, str]]
) -> None:
    file.write_text(text)
    found = check_outcomes(settings(file), load(file), file)
    assert [(problem.line, problem.key) for problem in found] == places


def test_with_its_settings_a_policy_is_in_order(file: Path) -> None:
    whole = settings(file, hash_key=KEY, webhook="https://x.example/", webhook_secret="whsec_x")
    assert check_outcomes(whole, load(file), file) == []
    assert missing_settings(whole.outcomes, load(file).announced) is None


@pytest.mark.parametrize("key", ["", "k" * 31])
def test_a_hash_key_that_is_too_short_counts_as_missing(key: str) -> None:
    said = missing_settings(OutcomeSettings(hash_key=key), {"sms.notice": "topic"})
    assert said is not None
    assert said.startswith('lane sms.notice: outcomes = "topic" needs settings of [outcomes]')


def test_a_lane_without_a_ledger_announces_nothing(file: Path) -> None:
    file.write_text('[lanes."sms.notice"]\nguarantee = "best_effort"\noutcomes = "topic"\n')
    with pytest.raises(PolicyError, match="outcomes: need the ledger") as refused:
        load(file)
    assert [problem.line for problem in refused.value.problems] == [3]
