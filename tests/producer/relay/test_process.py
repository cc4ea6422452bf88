"""`hongyan relay` on real Kafka and PostgreSQL: killed after the acknowledgement, paused past its lease,
ended by SIGTERM, and the operator's commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hongyan_client.outbox import Outbox
from tests.hongyan_client.outbox.places import OutboxPlace
from tests.producer.relay.processes import (
    RelayProcess,
    make_topic,
    marks_held_up,
    read_ids,
    until,
)


class RelayGround:
    """A business's database, a topic of its own, and relays on them."""

    def __init__(self, place: OutboxPlace, bootstrap: str, prefix: str, folder: Path) -> None:
        self.place = place
        place.outbox = Outbox(topic_prefix=prefix)
        self.bootstrap = bootstrap
        self.prefix = prefix
        self.topic = f"{prefix}.dispatch.sms.notice"
        self.folder = folder
        self.relays: list[RelayProcess] = []
        make_topic(bootstrap, self.topic)

    def relay(self) -> RelayProcess:
        log = self.folder / f"relay-{len(self.relays)}.log"
        self.relays.append(RelayProcess(self.place, self.bootstrap, self.prefix, log))
        return self.relays[-1]

    def all_sent(self) -> bool:
        return set(self.place.states().values()) == {"SENT"}

    def ids(self, enough: int) -> list[str]:
        return read_ids(self.bootstrap, self.topic, enough)


@pytest.fixture
def ground(
    postgres_place: OutboxPlace, kafka_bootstrap: str, topic_prefix: str, tmp_path: Path
) -> Any:
    made = RelayGround(postgres_place, kafka_bootstrap, topic_prefix, tmp_path)
    yield made
    for one in made.relays:
        one.kill()


def test_a_relay_killed_after_the_acknowledgement_doubles_the_id_and_loses_nothing(
    ground: RelayGround,
) -> None:
    place = ground.place
    ids = [place.add() for _ in range(3)]
    with marks_held_up(place):
        first = ground.relay()
        assert set(ground.ids(3)) == set(ids)  # acknowledged, and not marked
        first.kill()
    assert set(place.states().values()) == {"SENDING"}
    for one in ids:
        place.end_lease(one)
    ground.relay()
    until(ground.all_sent)
    assert Counter(ground.ids(6)) == dict.fromkeys(ids, 2)


def test_a_relay_paused_past_its_lease_marks_nothing_and_nothing_is_lost(
    ground: RelayGround,
) -> None:
    place = ground.place
    ids = [place.add() for _ in range(3)]
    with marks_held_up(place):
        paused = ground.relay()
        assert set(ground.ids(3)) == set(ids)
        paused.pause()
    for one in ids:
        until(lambda one=one: place.row(one).state == "SENDING")  # type: ignore[misc]
    until(lambda: expire(place, ids))
    ground.relay()
    until(ground.all_sent)
    marked = {one: place.row(one).done_at for one in ids}
    paused.send(signal.SIGCONT)
    last = place.add()
    until(ground.all_sent)
    assert paused.end() == 0
    assert {one: place.row(one).done_at for one in ids} == marked
    assert Counter(ground.ids(7)) == {**dict.fromkeys(ids, 2), last: 1}


def expire(place: OutboxPlace, ids: list[str]) -> bool:
    """Ends the leases. Returns False if the paused relay's own transaction still holds a row."""
    from sqlalchemy import text

    with place.engine.begin() as connection:
        free = connection.execute(
            text("SELECT count(*) FROM (SELECT 1 FROM hongyan_outbox FOR UPDATE SKIP LOCKED) f")
        ).scalar_one()
        if free != len(ids):
            return False
        connection.execute(text("UPDATE hongyan_outbox SET next_at = 1 WHERE state = 'SENDING'"))
    return True


def test_sigterm_marks_what_was_published_and_leaves_a_last_sign_of_life(
    ground: RelayGround,
) -> None:
    relay = ground.relay()
    ids = [ground.place.add("order-1") for _ in range(5)]
    until(ground.all_sent)
    assert relay.end() == 0
    assert [one for one in ground.ids(5) if one in ids] == ids
    (beat,) = ground.place.rows.heartbeats()
    assert (beat.state, beat.published, beat.pending) == ("ended", 5, 0)
    assert relay.events()[-1] == "stopped"


def command(ground: RelayGround, *words: str) -> tuple[int, Any]:
    """Returns the exit code and the JSON of one of the operator's commands."""
    environment = {
        **os.environ,
        "HONGYAN_RELAY__OUTBOX_URL": ground.place.engine.url.render_as_string(hide_password=False),
    }
    done = subprocess.run(
        [sys.executable, "-c", "from hongyan.program import main; main()", "outbox", *words],
        env=environment,
        cwd=ground.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr


@pytest.mark.soak(small="::test_sigterm_marks_what_was_published_and_leaves_a_last_sign_of_life")
def test_a_person_sees_releases_and_recalls_parked_rows(ground: RelayGround) -> None:
    place = ground.place
    parked, other = place.add(), place.add()
    place.set(parked, "state = 'PARKED', next_at = NULL, attempt = 20, last_error = 'no [topic]'")
    code, shown = command(ground, "list", "--parked", "--json")
    assert (code, shown["backlog"]["parked"]) == (1, 1)
    assert [row["message_id"] for row in shown["rows"]] == [parked]
    assert "payload" not in shown["rows"][0]
    code, refused = command(ground, "release", parked)
    assert (code, "--reason" in refused) == (2, True)
    code, done = command(
        ground, "release", parked, "--reason", "mended", "--author", "li", "--json"
    )
    assert (code, done) == (0, {"id": parked, "released": 1})
    assert place.row(parked).last_error == "released by li: mended"
    code, done = command(ground, "recall", other, "--reason", "cancelled", "--json")
    assert (code, done["recalled"]) == (0, 1)
    code, refused = command(ground, "recall", other, "--reason", "again")
    assert (code, "hongyan recall" in refused) == (1, True)
    code, rows = command(ground, "show", other, "--json")
    assert (code, rows[0]["state"]) == (0, "RECALLED")
    ground.relay()
    until(lambda: place.states()[parked] == "SENT")
    assert ground.ids(1) == [parked]


def test_a_database_without_the_tables_is_one_clear_sentence(database: str, tmp_path: Path) -> None:
    environment = {**os.environ, "HONGYAN_RELAY__OUTBOX_URL": database}
    done = subprocess.run(
        [sys.executable, "-c", "from hongyan.program import main; main()", "relay"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert "there is no table hongyan_outbox: run the business's migration" in done.stderr
    assert "hongyan:hongyan" not in done.stderr
