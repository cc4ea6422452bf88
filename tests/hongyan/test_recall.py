"""The command's output for a recall with more deliveries than it lists."""

import pytest

from hongyan.commands.recall import _show
from idempotency.recalls import Kind
from message.states import State
from recovery.recall.recall import Recalled, RecallOutcome, RecallVerdict


def test_deliveries_beyond_the_list_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    one = RecallOutcome(
        *("k" * 32, "m-1", "webhook.notice", "***", State.SENT),
        *(RecallVerdict.NOT_POSSIBLE, "webhook takes nothing back"),
    )
    verdicts = {RecallVerdict.CANCELLED: 12_000, RecallVerdict.NOT_POSSIBLE: 1}
    _show(Recalled(Kind.BIZ, "sale", 0, [one], verdicts), [])
    printed = " ".join(capsys.readouterr().out.split())
    assert "and 12,000 more; of all deliveries: 12,000 cancelled, 1 not_possible" in printed
