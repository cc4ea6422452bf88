"""docs/ledger.md draws what the code does."""

import re
from pathlib import Path

from idempotency.claims.rows import OutcomeRow
from message.states import TRANSITIONS

PAGE = (Path(__file__).parents[2] / "docs" / "ledger.md").read_text("utf-8")


def test_the_diagram_is_the_table_of_transitions() -> None:
    drawn = re.findall(r"^    (\S+) --> (\S+) : (.+)$", PAGE, re.MULTILINE)
    assert drawn == [
        (state or "[*]", target, event.value) for (state, event), target in TRANSITIONS.items()
    ]


def test_the_page_names_what_a_settlement_may_write() -> None:
    for column in ("state", "reason", "provider_id", "account"):
        assert column in OutcomeRow._fields
        assert f"`{column}`" in PAGE
