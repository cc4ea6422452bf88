"""The alert `lost`, and the numbers of findings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.idempotency.making import World, delivery
from tests.recovery.lost.lostfield import LostField
from tests.recovery.test_fleet_alerts import WINDOW_S, Hook, Process, advance


def lost(hook: Hook) -> list[Mapping[str, Any]]:
    """Returns the webhook's alerts of this rule; the workers' heartbeats lapse meanwhile."""
    return [one for one in hook.heard if one["rule"] == "lost"]


def test_findings_are_an_alert_until_they_are_decided(world: World) -> None:
    field, hook = LostField(world), Hook()
    one = Process(field.ledger, "w1", hook)
    one.look()
    assert lost(hook) == []
    first = field.found(delivery(), kept=True)
    second = field.found(delivery(), status="ASKED")
    field.found(delivery(), status="CONTRADICTED")
    advance(world, 11, one)
    one.look()
    assert [(one["state"], one["count"]) for one in lost(hook)] == [("firing", 1)]
    (told,) = lost(hook)
    assert (told["lane"], told["about"]) == ("sms.notice", "passed")
    assert "1 to be entered by recovery" in told["text"]
    assert "1 for a person to decide" in told["text"]
    numbers = {
        tuple(r.labels.values()): r.value for r in one.fleet.readings() if "cause" in r.labels
    }
    assert numbers == {
        ("sms.notice", "passed", "NEW"): 1,
        ("sms.notice", "passed", "ASKED"): 1,
    }
    field.findings.dismiss([second], "lin", "no")
    field.run()
    assert field.finding(first).status == "RESENT"
    for _ in range(int(WINDOW_S // 11) + 5):
        advance(world, 11, one)
        one.look()
    assert lost(hook)[-1]["state"] == "cleared"
    assert [r for r in one.fleet.readings() if "cause" in r.labels] == []
