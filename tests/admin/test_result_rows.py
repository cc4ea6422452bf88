"""The rows of a search's results are written by a function; it escapes as templates do."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from admin.pages.deliveries.result_rows import rows_of
from idempotency.search.store import SearchPage, SearchRow
from tests.admin.hostile import HOSTILE, LiveParts

AT, ENDED_AT = 1_790_172_191_042, 1_790_172_200_042
ROW = SearchRow(
    delivery_key="ab" * 32,
    message_id="m-1",
    biz_id=None,
    lane="sms.notice",
    state="PARKED",
    reason="attempts_spent",
    attempt=3,
    account=None,
    provider_id=None,
    template=None,
    created_at=AT,
    updated_at=ENDED_AT,
    next_at=None,
    expires_at=AT,
    policy_version="1",
    resend_of=None,
    owner="w",
)
WRITTEN = ("delivery_key", "message_id", "biz_id", "lane", "state", "reason", "account", "template")


def with_value(field: str, value: Any) -> SearchRow:
    return msgspec.structs.replace(ROW, **{field: value})


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("field", WRITTEN)
def test_whatever_a_field_holds_is_text(field: str, value: str) -> None:
    written = rows_of(SearchPage([with_value(field, value)]))
    found = LiveParts(f"<table>{written}</table>")
    assert found.found == []
    assert "\u202e" not in written
    assert "\u200b" not in written


def test_a_row_has_its_cells_in_the_order_of_the_columns() -> None:
    written = str(rows_of(SearchPage([ROW])))
    assert re.sub("<[^>]+>", " ", written).split() == [
        *("PARKED", "2026-09-23", "14:03:11", "m-1", "sms.notice", "attempts_spent", "3")
    ]
    assert f'href="/deliveries/{ROW.delivery_key}"' in written
    assert written.count("<td") == written.count("</td>") == 9


def test_of_rows_by_their_end_the_end_is_shown() -> None:
    assert "14:03:20" in rows_of(SearchPage([ROW], by_end=True))
    assert "14:03:11" in rows_of(SearchPage([ROW], by_end=False))


def test_a_long_text_is_cut() -> None:
    written = rows_of(SearchPage([with_value("reason", "x" * 500)]))
    assert "x" * 120 + "… (+380)" in written
    assert "x" * 121 not in written
