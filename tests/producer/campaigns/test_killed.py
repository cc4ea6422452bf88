"""Real processes are killed -9 again and again in the middle of a campaign, on a real Kafka."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from producer.campaigns.contract import CampaignState
from producer.campaigns.row_ids import row_id
from tests.harness.waiting import await_
from tests.producer.campaigns.crowds import LANE, CampaignDesk, crowd

ROWS = 4_000
KILLS = 4


@pytest.fixture(params=["sqlite", "postgresql"])
def real_desk(
    request: pytest.FixtureRequest, kafka_bootstrap: str, topic_prefix: str, tmp_path: Path
) -> Iterator[CampaignDesk]:
    name = "sqlite_database" if request.param == "sqlite" else "ledger_database"
    url = str(request.getfixturevalue(name))
    topic = NewTopic(f"{topic_prefix}.dispatch.{LANE}", 3, 1)
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    for made in admin.create_topics([topic]).values():
        made.result(20)
    desk = CampaignDesk(url, kafka_bootstrap, topic_prefix, tmp_path)
    yield desk
    desk.close()


@pytest.fixture
def process(
    real_desk: CampaignDesk, tmp_path: Path, request: pytest.FixtureRequest
) -> Callable[[], subprocess.Popen[bytes]]:
    """Starts `hongyan campaign run` on the desk's configuration; killed at the end."""
    settings = real_desk.settings
    file = tmp_path / "hongyan.toml"
    file.write_text(
        f'[kafka]\nbootstrap = "{settings.kafka.bootstrap}"\n'
        f'topic_prefix = "{settings.kafka.topic_prefix}"\n'
        "[trace]\nkafka = false\ndatabase = false\n"
        '[campaigns]\nlease_s = 1.0\nhealth_address = "127.0.0.1:0"\n'
    )

    def start() -> subprocess.Popen[bytes]:
        program = Path(sys.executable).parent / "hongyan"
        command = [str(program), "--config", str(file), "campaign", "run"]
        with (tmp_path / "process.log").open("ab") as log:
            child = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                env=os.environ | {"HONGYAN_DATABASE__URL": settings.database.url},
            )
        request.addfinalizer(child.kill)
        return child

    return start


def _reached(desk: CampaignDesk, campaign: str, mark: int) -> bool:
    return any(run.done >= mark for run in desk.runs.of(campaign))


@pytest.mark.soak(cases="postgresql")
def test_killed_again_and_again_each_row_is_in_the_topic_once(
    real_desk: CampaignDesk, process: Callable[[], subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    desk, chance = real_desk, random.Random(17)
    one = desk.started(crowd(tmp_path, ROWS), rate_per_s=ROWS / 4.0)
    marks = sorted(chance.sample(range(ROWS // 10, ROWS * 7 // 10), KILLS))
    for mark in marks:
        child = process()
        await_(
            partial(_reached, desk, one.id, mark),
            what=lambda: (tmp_path / "process.log").read_text()[-2_000:],
        )
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        assert not desk.actions.get(one.id).is_over
    last = process()
    desk.until(one.id, CampaignState.DONE)
    last.terminate()
    assert last.wait(30) == 0
    run = desk.run_of(one.id)
    assert (run.done, run.sent, run.bad) == (ROWS, ROWS, 0)
    counts = Counter(notification.id for notification in desk.sent())
    assert counts == {row_id(run.id, n): 1 for n in range(1, ROWS + 1)}
