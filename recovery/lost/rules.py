"""Decisions that follow from a finding and its lane's policy alone. Pure functions.

`passed` and `removed` prove that no worker claimed the delivery and none will read it. The other causes
prove less: a person decides, and only where sending could be right at all.
"""

from __future__ import annotations

import re
from typing import Final

from idempotency.lost.findings import Decision, Finding, FindingStatus
from message.delivery import Origin
from message.keys import KEY_LENGTH
from message.loss import LossCause
from message.vocabulary import lane_named
from policy.schema import Guarantee, Policy

SURE: Final = frozenset({LossCause.PASSED, LossCause.REMOVED})
"""Causes that recovery acts on by itself."""
IN_LEDGER: Final = frozenset({LossCause.OPEN, LossCause.SILENT})
"""Causes whose delivery has a row."""
NO_NAME: Final = "nobody can name the deliveries of these offsets"
ASKS: Final = "its lane's policy asks a person"
UNPROVEN: Final = "its cause does not prove that it was not sent"
NO_LEDGER: Final = "its lane has no ledger (best_effort)"
_KEY: Final = re.compile(rf"[0-9a-f]{{{KEY_LENGTH}}}")


def decided(finding: Finding, policy: Policy) -> Decision | None:
    """Returns the decision on a NEW finding that needs no look at Kafka or the ledger; None without one."""
    lane = lane_named(finding.lane)
    if lane is None:
        return _asked(finding, f"this program knows no lane {finding.lane!r}")
    terms = policy.of(lane)
    if terms.guarantee is Guarantee.BEST_EFFORT:
        return Decision(finding.id, FindingStatus.CONTRADICTED, NO_LEDGER)
    if not names_delivery(finding):
        return _asked(finding, NO_NAME)
    if finding.cause in IN_LEDGER:
        return _asked(finding, resend_hint(finding))
    if finding.is_ordered:
        return None
    if finding.cause not in SURE or not finding.certain:
        return _asked(finding, UNPROVEN)
    return None if terms.resends_lost else _asked(finding, ASKS)


def order_refusal(finding: Finding) -> str:
    """Returns the reason for which nobody may order this finding's resend; empty if one may."""
    if finding.status is not FindingStatus.ASKED:
        return f"it is {finding.status.value}, and waits for no order"
    if not names_delivery(finding):
        return NO_NAME
    if finding.cause in IN_LEDGER:
        return resend_hint(finding)
    if finding.body is None and origin_of(finding) is None:
        return "nobody has its body"
    return ""


def resend_hint(finding: Finding) -> str:
    """Returns the way of a person with a delivery that has a row."""
    if finding.cause == LossCause.SILENT:
        return f"the ledger has it as sent: a second copy is `hongyan resend {finding.subject} --new-id`"
    return f"the ledger has it: `hongyan resend {finding.subject}`"


def names_delivery(finding: Finding) -> bool:
    """Returns whether the subject is a delivery key."""
    return _KEY.fullmatch(finding.subject) is not None


def origin_of(finding: Finding) -> Origin | None:
    """Returns the place of its record; None where it is not known."""
    rest, _, offset = (finding.origin or "").rpartition("/")
    topic, _, partition = rest.rpartition("/")
    if not (topic and partition.isdigit() and offset.isdigit()):
        return None
    return Origin(topic, int(partition), int(offset))


def _asked(finding: Finding, why: str) -> Decision:
    return Decision(finding.id, FindingStatus.ASKED, why)
