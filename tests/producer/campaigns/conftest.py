from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.kafka.embedded import EmbeddedKafka
from producer.campaigns import row_publisher, run_sender, runner
from tests.producer.campaigns.crowds import CampaignDesk


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What runs on PostgreSQL needs the stack, which it could not know from its arguments' names."""
    for item in items:
        callspec = getattr(item, "callspec", None)
        if callspec and callspec.params.get("url") == "postgresql" and "campaigns" in item.nodeid:
            item.fixturenames.append("services")  # type: ignore[attr-defined]
            item.add_marker(pytest.mark.stack)


@pytest.fixture(autouse=True)
def _quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks of this process come often."""
    monkeypatch.setattr(runner, "LOOK_S", 0.1)
    monkeypatch.setattr(run_sender, "LOOK_S", 0.1)
    monkeypatch.setattr(row_publisher, "AGAIN_S", 0.1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka() as started:
        yield started


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str:
    name = "sqlite_database" if request.param == "sqlite" else "ledger_database"
    return str(request.getfixturevalue(name))


@pytest.fixture
def desk(url: str, cluster: EmbeddedKafka, tmp_path: Path) -> Iterator[CampaignDesk]:
    """A desk on each of the ledger's databases, with librdkafka's in-process cluster."""
    opened = CampaignDesk(url, cluster.bootstrap, f"c{uuid.uuid4().hex[:8]}", tmp_path)
    yield opened
    opened.close()
