"""`/deliveries/KEY/rebuilt`: the path that Spark rebuilt, read from a Delta table."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from admin.pages.deliveries import rebuilt
from admin.parts import ConsoleParts
from message.delivery import Delivery
from tests.admin.delivering import EVIL, Stock, signed_in, stock

NOW = 1_795_000_000_000


@pytest.fixture
def stocked(parts: ConsoleParts) -> Stock:
    return stock(parts)


@pytest.fixture
def warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Delivery], None]:
    arrow = pytest.importorskip("arro3.core", reason="needs hongyan[spark]")
    deltalake = pytest.importorskip("deltalake", reason="needs hongyan[spark]")
    place = str(tmp_path / "deliveries")
    monkeypatch.setattr(rebuilt, "place_of", lambda _settings: place)
    monkeypatch.setattr(rebuilt, "why_not", lambda _settings: "")

    def write(one: Delivery) -> None:
        event = {"at": NOW, "stage": "settled", "state": "SENT", "attempt": 1, "detail": EVIL}
        row: dict[str, Any] = {
            "delivery_key": one.key,
            "message_id": one.notification.id,
            "biz_id": "",
            "lane": one.lane,
            "template": "",
            "receiver": "+86138***0001",
            "receiver_hash": "",
            "origin": "",
            "resend_of": "",
            "created_at": NOW,
            "appended_at": NOW,
            "state": "SENT",
            "missing": ["claimed:dropped"],
            "timeline": [event | {"message_id": one.notification.id}],
        }
        columns = {
            name: arrow.Array.from_arrow(_array(arrow, value)) for name, value in row.items()
        }
        deltalake.write_deltalake(place, arrow.Table.from_pydict(columns))

    return write


def _array(arrow: Any, value: Any) -> Any:
    """Returns an array of this one value."""
    if isinstance(value, list) and isinstance(value[0], dict):
        fields = value[0]
        parts = [_array(arrow, one) for one in fields.values()]
        some = [arrow.Field(name, part.type) for name, part in zip(fields, parts, strict=True)]
        inner = arrow.struct_array(parts, fields=some)
        return arrow.list_array(arrow.Array([0, 1], arrow.DataType.int32()), inner)
    if isinstance(value, list):
        inner = arrow.Array(value, arrow.DataType.string())
        return arrow.list_array(arrow.Array([0, 1], arrow.DataType.int32()), inner)
    kind = arrow.DataType.int64() if isinstance(value, int) else arrow.DataType.string()
    return arrow.Array([value], kind)


def test_the_page_shows_the_path_the_missing_stages_and_foreign_texts_as_text(
    stocked: Stock,
    browser: Callable[[], Any],
    user: Callable[..., int],
    warehouse: Callable[[Delivery], None],
) -> None:
    warehouse(stocked.sent)
    page = signed_in(browser, user).get(f"/deliveries/{stocked.sent.key}/rebuilt")
    assert page.status_code == 200
    assert "claimed:dropped" in page.text
    assert "2026-11-18" in page.text
    assert "<script>alert" not in page.text


def test_a_delivery_that_the_warehouse_does_not_have_is_said_to_be_missing(
    stocked: Stock,
    browser: Callable[[], Any],
    user: Callable[..., int],
    warehouse: Callable[[Delivery], None],
) -> None:
    warehouse(stocked.sent)
    page = signed_in(browser, user).get(f"/deliveries/{stocked.parked.key}/rebuilt").text
    assert "has nothing of this delivery yet" in page


def test_a_warehouse_that_cannot_be_read_is_one_sentence(
    stocked: Stock, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    page = signed_in(browser, user).get(f"/deliveries/{stocked.sent.key}/rebuilt")
    assert page.status_code == 200
    assert "The warehouse was not read." in page.text


def test_another_lanes_delivery_has_no_rebuilt_path(
    stocked: Stock, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    one = signed_in(browser, user)
    assert one.get(f"/deliveries/{stocked.elsewhere.key}/rebuilt").status_code == 404
