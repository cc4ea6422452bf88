"""topics, policy, db and trace, for people and for programs."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from backends.settings import DatabaseSettings, Settings, TraceSettings
from tests.hongyan.conftest import Run
from tracing import open_recorder
from tracing.events import Stage, TraceEvent


def test_topics_are_applied_once_and_then_exist(
    hongyan: Run, kafka: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HONGYAN_KAFKA__TOPIC_PREFIX", "t1")
    dry = hongyan("topics", "apply", "--lanes", "sms.*,email.notice", "--dry-run")
    assert dry.code == 0
    assert dry.out.count("missing") == 7
    made = hongyan("topics", "apply", "--lanes", "sms.*,email.notice", "--json")
    assert {r["status"] for r in made.json} == {"created"}
    again = hongyan("topics", "apply", "--lanes", "sms.*,email.notice")
    assert again.out.count("exists") == 7
    assert "t1.dispatch.email.notice" in again.out


def test_topics_that_cannot_be_are_refused(hongyan: Run, kafka: str) -> None:
    said = hongyan("topics", "apply", "--replication", "3")
    assert said.code == 1
    assert said.err.startswith("3 copies need 3 brokers and the cluster has 1")


def test_a_good_policy_is_ok_and_a_bad_one_is_told_whole(hongyan: Run, folder: Path) -> None:
    none = hongyan("policy", "check")
    assert (none.code, none.out) == (0, "ok no policy file, so the defaults hold  (default)\n")
    (folder / "policy.toml").write_text("[defaults]\nthreads = 0\nqueu = 1\n")
    said = hongyan("policy", "check")
    assert said.code == 1
    assert said.out.splitlines() == [
        "policy.toml:2  defaults.threads: expected int >= 1, got 0",
        "policy.toml:3  defaults.queu: unknown key; did you mean queue?",
    ]
    for_programs = hongyan("policy", "check", "--json").json
    assert [p["line"] for p in for_programs["problems"]] == [2, 3]
    assert for_programs["version"] is None


def test_limits_of_mail_below_the_protocols_own_are_a_warning_and_no_problem(
    hongyan: Run, folder: Path
) -> None:
    (folder / "policy.toml").write_text("[defaults.smtp]\nfinal_ms = 5_000\n")
    said = hongyan("policy", "check")
    assert said.code == 0
    assert "warning  policy.toml:2  defaults.smtp.final_ms: 5000 is below RFC 5321's" in said.out
    for_programs = hongyan("policy", "check", "--json")
    assert (for_programs.code, for_programs.json["problems"]) == (0, [])
    assert [one["line"] for one in for_programs.json["warnings"]] == [2]


def test_another_file_can_be_checked(hongyan: Run, folder: Path) -> None:
    (folder / "draft.toml").write_text("[defaults]\nthreads = 7\n")
    said = hongyan("policy", "check", "draft.toml", "--json")
    assert said.code == 0
    assert said.json["version"].startswith("file:")


def test_the_policy_is_shown_as_workers_follow_it(hongyan: Run, folder: Path) -> None:
    (folder / "policy.toml").write_text('[lanes."sms.notice"]\nthreads = 77\n')
    said = hongyan("policy", "show", "--lanes", "sms.*")
    assert "77+77" in said.out
    assert "5 s · 20 min" in hongyan("policy", "show", "--lanes", "email.notice").out
    assert "5 min ≤ 1 h" in said.out
    lanes = hongyan("policy", "show", "--json").json["lanes"]
    assert len(lanes) == 30
    assert lanes["sms.notice"]["threads"] == 77


def test_the_database_is_upgraded_once(hongyan: Run, folder: Path) -> None:
    first = hongyan("db", "upgrade", "--json").json
    assert (first["before"], first["changed"]) == ("", True)
    assert (folder / "hongyan.db").is_file()
    second = hongyan("db", "upgrade")
    assert second.code == 0
    place = f"sqlite:///{folder}/hongyan.db (default)"
    assert second.out == f"{place} is at version {first['now']} already\n"


def test_an_upgrade_names_its_database_before_it_begins(hongyan: Run, folder: Path) -> None:
    (folder / "hongyan.toml").write_text('[database]\nurl = "sqlite:///own.db"\n')
    place = f"sqlite:///{folder}/own.db (hongyan.toml:2)"
    before = hongyan("db", "version")
    assert (before.code, before.out) == (1, f"{place}: version none\n")
    assert "run `hongyan db upgrade`" in before.err
    assert not (folder / "own.db").exists()
    said = hongyan("db", "upgrade")
    head = hongyan("db", "version", "--json").json["wanted"]
    assert said.err == f"{place}: version none, going to {head}\n"
    assert said.out == f"{place}: version none → {head}\n"
    after = hongyan("db", "version")
    assert (after.code, after.out) == (0, f"{place}: version {head}\n")


def test_a_database_of_a_newer_program_is_left_alone(hongyan: Run, folder: Path) -> None:
    hongyan("db", "upgrade")
    with sqlite3.connect(folder / "hongyan.db") as database:
        database.execute("UPDATE hongyan_schema SET version_num = '9999'")
    database.close()
    said = hongyan("db", "version")
    assert said.code == 1
    assert "run one that is as new as the schema" in said.err


@pytest.mark.parametrize(
    "command",
    ["status", "db version", "db upgrade", "deliveries list", "policy history", "trace x"],
)
def test_a_file_that_is_no_database_is_told_in_a_sentence(
    hongyan: Run, folder: Path, command: str
) -> None:
    (folder / "hongyan.db").write_bytes(b"PK" * 5_000)
    said = hongyan(*command.split())
    assert (said.code, said.out) == (1, "")
    assert "names a file that is no SQLite database, or a damaged one: file is not" in said.err
    assert (folder / "hongyan.db").read_bytes() == b"PK" * 5_000


def record(folder: Path, **fields: Any) -> None:
    """One settled delivery in the trace of the folder's database."""
    settings = Settings(
        database=DatabaseSettings(url=f"sqlite:///{folder}/hongyan.db"),
        trace=TraceSettings(kafka=False),
    )
    recorder = open_recorder(settings)
    base: dict[str, Any] = {"at": 1_795_000_000_100, "stage": Stage.SETTLED, "message_id": "m1"}
    recorder.record([TraceEvent(**{**base, **fields})])
    recorder.close(10.0)


def test_a_message_is_told_as_a_story(hongyan: Run, folder: Path) -> None:
    hongyan("db", "upgrade")
    record(
        folder,
        delivery_key="k1",
        lane="sms.notice",
        biz_id="order-1",
        receiver="138***0001",
        created_at=1_795_000_000_000,
        started_at=1_795_000_000_050,
        answered_at=1_795_000_000_099,
        attempt=1,
        account="main",
        state="UNKNOWN",
        reason="timeout",
        detail="no answer within 5 s [odd] text",
    )
    said = hongyan("trace", "m1")
    assert said.code == 0
    assert said.out.splitlines()[0] == "m1  sms.notice  order-1"
    assert "138***0001" in said.out
    assert "+50 ms  provider called" in said.out
    assert "UNKNOWN timeout  no answer within 5 s [odd] text" in said.out
    moments = hongyan("trace", "m1", "--json").json[0]["deliveries"][0]["moments"]
    assert [m["what"] for m in moments] == ["created", "called", "answered", "settled"]


def test_a_call_that_nobody_answered_is_not_told_as_answered(hongyan: Run, folder: Path) -> None:
    hongyan("db", "upgrade")
    record(folder, started_at=1_795_000_000_050, answered_at=1_795_000_003_050, attempt=1,
           call_end="timed_out", state="UNKNOWN", policy_version="v3:ab")  # fmt: skip
    said = hongyan("trace", "m1")
    assert "no answer in time after 3,000 ms" in " ".join(said.out.split())
    assert "answered" not in said.out
    assert "policy v3:ab" in said.out


def test_a_place_is_read_from_kafka_and_told_as_its_message(
    hongyan: Run, folder: Path, kafka: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HONGYAN_KAFKA__TOPIC_PREFIX", "places")
    hongyan("db", "upgrade")
    assert hongyan("topics", "apply", "--lanes", "sms.notice").code == 0
    assert hongyan("send", "--lane", "sms.notice", "--to", "+8613800000001",
                   "--content", '{"text":"hi"}', "--id", "m1").code == 0  # fmt: skip
    record(folder, delivery_key="k1", lane="sms.notice", state="SENT")
    places = [f"places.dispatch.sms.notice/{number}/0" for number in range(12)]
    told = [hongyan("trace", place) for place in places]
    assert sorted(said.code for said in told) == [0] + [1] * 11
    (found,) = [said for said in told if said.code == 0]
    assert found.out.splitlines()[0] == "m1  sms.notice"
    missing = next(said for said in told if said.code)
    assert "Kafka has no record at that place (any more); give the message's id" in missing.err
    assert hongyan("trace", "places.dispatch.nowhere/0/0").code == 1


def test_nothing_known_is_a_problem_and_said(hongyan: Run) -> None:
    hongyan("db", "upgrade")
    said = hongyan("trace", "nobody")
    assert said.code == 1
    assert "nothing is known of 'nobody'" in said.err
    assert hongyan("trace", "nobody", "--json").out == "[]\n"


def test_looking_into_a_ledger_that_is_not_there_makes_none(hongyan: Run, folder: Path) -> None:
    assert hongyan("trace", "x").code == 2
    assert not (folder / "hongyan.db").exists()


ROBOTS = """
[accounts.app]
provider = "wecom"
[accounts.app2]
provider = "wecom"
[accounts.ops]
provider = "wecom_robot"
group = "ops"
[accounts.ops2]
provider = "wecom_robot"
group = "ops"
[accounts.sales]
provider = "wecom_robot"
group = "sales"
"""


def test_a_policy_that_mixes_persons_and_groups_is_told_what_to_write(
    hongyan: Run, folder: Path
) -> None:
    with (folder / "hongyan.toml").open("a") as file:
        file.write(ROBOTS)

    def problems(accounts: str) -> list[str]:
        text = f'[defaults]\nthreads = 3\n[lanes."wecom.notice"]\naccounts = {accounts}\n'
        (folder / "policy.toml").write_text(text)
        said = hongyan("policy", "check", "--json")
        assert said.code == (1 if said.json["problems"] else 0)
        assert all(p["line"] == 4 for p in said.json["problems"])
        return [f"{p['key']}: {p['text']}" for p in said.json["problems"]]

    assert problems('["app", "ops", "sales"]') == []
    assert problems("{ app = 3, app2 = 1, ops = 1 }") == []
    assert problems("{ app = 1, ops = 1, ops2 = 0 }") == []
    assert problems("{ app = 1, ops = 0 }") == [
        (
            'lanes."wecom.notice".accounts.ops: is a reserve (0) of nobody: it reaches group:ops, and the'
            " others do not (app (persons)); give it a weight of 1, or leave it out"
        )
    ]
    assert problems("{ ops = 1, sales = 0 }") == [
        (
            'lanes."wecom.notice".accounts.sales: is a reserve (0) of nobody: it reaches group:sales, and'
            " the others do not (ops (group:ops)); give it a weight of 1, or leave it out"
        )
    ]
    assert problems("{ app = 3, ops = 1 }") == [
        (
            'lanes."wecom.notice".accounts: weighs accounts of which no two reach the same (app reaches'
            ' persons, ops reaches group:ops), so no weight counts; write ["app", "ops"]'
        )
    ]


def test_a_robot_that_names_no_group_is_told_by_the_policys_check(
    hongyan: Run, folder: Path
) -> None:
    with (folder / "hongyan.toml").open("a") as file:
        file.write('[accounts.ops]\nprovider = "wecom_robot"\n')
    (folder / "policy.toml").write_text('[lanes."wecom.notice"]\naccounts = ["ops"]\n')
    said = hongyan("policy", "check")
    assert said.code == 2
    assert (
        "accounts.ops.group: is missing; a robot reaches one group alone; name it here" in said.err
    )


def test_applications_of_several_companies_in_one_lane_are_warned_of(
    hongyan: Run, folder: Path
) -> None:
    with (folder / "hongyan.toml").open("a") as file:
        for name, company in (("here", "ww1"), ("here2", "ww1"), ("there", "ww2")):
            file.write(f'[accounts.{name}]\nprovider = "wecom"\ncorpid = "{company}"\n')

    def warnings(accounts: str) -> list[str]:
        (folder / "policy.toml").write_text(f'[lanes."wecom.notice"]\naccounts = {accounts}\n')
        said = hongyan("policy", "check", "--json")
        assert said.code == 0
        lines = {w["text"] for w in said.json["warnings"] if "wecom.notice" in w["key"]}
        return sorted(lines)

    assert warnings('["here", "here2"]') == []
    (warning,) = warnings('["here", "there"]')
    assert warning.startswith("wecom: here, there are of several companies, and one name may be")
