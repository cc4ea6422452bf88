"""`hongyan send`: what is good goes, what is bad is named by its line."""

import inspect
import json
import time
from pathlib import Path

import pytest

from backends.kafka import clients
from backends.kafka.embedded import EmbeddedKafka
from backends.settings import KafkaSettings
from hongyan.commands.send import send
from hongyan.enqueue import BadLine, EnqueueOutcome, NotificationSender, read_lines
from message.envelope import decode
from message.keys import delivery_key
from tests.hongyan.conftest import Run
from tests.hongyan_client.looking import paused

GOOD = {"channel": "sms", "kind": "notice", "receivers": ["+8613800000001"], "content": {"t": 1}}
ROOT = Path(__file__).parents[2]


def records(bootstrap: str, topic: str, count: int) -> list[clients.Message]:
    settings = KafkaSettings(bootstrap=bootstrap, group_id=f"g{time.monotonic_ns()}")
    member = clients.consumer(settings, protocol="classic")
    member.subscribe([topic])
    found: list[clients.Message] = []
    deadline = time.monotonic() + 30
    while len(found) < count:
        assert time.monotonic() < deadline
        message = member.poll(0.1)
        if message is not None and message.error() is None:
            found.append(message)
    member.close()
    return found


def test_one_notification_from_flags_stands_in_kafka_as_it_was_meant(
    hongyan: Run, kafka: str
) -> None:
    said = hongyan(
        *("send", "--lane", "wecom.notice", "--to", "zhang", "--to", "li", "--template", "T1"),
        *("--param", "code=4711", "--biz-id", "order-1", "--ordering-key", "o1", "--ttl", "60"),
        *("--attribute", "source=test", "--json"),
    )
    assert said.code == 0
    assert said.json["sent"] == 1
    (record,) = records(kafka, "hongyan.dispatch.wecom.notice", 1)
    found = decode(record.value())
    assert found.id == said.json["last"]["id"]
    assert found.receivers == ["zhang", "li"]
    assert found.template is not None
    assert found.template.params == {"code": "4711"}
    assert (found.biz_id, found.ttl_ms, found.attributes) == ("order-1", 60_000, {"source": "test"})
    assert record.key() == b"o1"
    assert record.headers() == [("hongyan-id", found.id.encode())]


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--to", "u1"), "--to"),
        (("--template", "T"), "--template"),
        (("--param", "code=1"), "--param"),
        (("--content", "{}"), "--content"),
        (("--biz-id", "o1"), "--biz-id"),
        (("--ttl", "5m"), "--ttl"),
        (("--ordering-key", "k"), "--ordering-key"),
        (("--account", ""), "--account"),
        (("--id", "one"), "--id"),
        (("--resend-of", "one"), "--resend-of"),
        (("--attribute", "a=b"), "--attribute"),
        (("--ttl", "5m", "--check", "--account", "main"), "--ttl, --account"),
    ],
)
def test_a_flag_of_a_notification_does_not_go_with_a_file(
    hongyan: Run, folder: Path, flags: tuple[str, ...], named: str
) -> None:
    (folder / "n.jsonl").write_text(json.dumps(GOOD))
    said = hongyan("send", "--file", "n.jsonl", *flags)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(f"{named}: not with --file")


def test_every_option_of_send_is_for_a_file_too_or_refused_beside_it() -> None:
    with_file = {"file", "check", "lane", "wait", "timeout", "as_json", "context"}
    refused = {
        *("to", "template", "param", "content", "biz_id", "ttl", "ordering_key", "account"),
        *("message_id", "resend_of", "attribute"),
    }
    assert set(inspect.signature(send).parameters) == with_file | refused


def test_one_notification_is_told_with_its_place(hongyan: Run, kafka: str) -> None:
    said = hongyan("send", "--lane", "push.notice", "--to", "u1", "--content", '{"text":"hi"}')
    assert said.code == 0
    assert said.out.startswith("sent ")
    assert "hongyan.dispatch.push.notice/" in said.out


def test_bad_lines_are_named_and_the_good_ones_go(hongyan: Run, kafka: str, folder: Path) -> None:
    lines = [
        json.dumps({**GOOD, "channel": "feishu", "extra": "kept"}),
        "",
        "{broken",
        json.dumps({**GOOD, "receivers": ["x", ""]}),
        "[]",
        json.dumps({**GOOD, "channel": "feishu", "id": "mine"}),
    ]
    (folder / "in.jsonl").write_text("\n".join(lines))
    said = hongyan("send", "--file", "in.jsonl", "--json")
    assert said.code == 1
    assert said.json["sent"] == 2
    assert [(b["line"], b["code"], b["path"]) for b in said.json["bad"]] == [
        (3, "not_json", "$"),
        (4, "bad_receiver", "$.receivers[1]"),
        (5, "not_an_object", "$"),
    ]
    sent = records(kafka, "hongyan.dispatch.feishu.notice", 2)
    values = {decode(r.value()).id: json.loads(r.value() or b"") for r in sent}
    assert "mine" in values
    assert any(value.get("extra") == "kept" for value in values.values())
    human = hongyan("send", "--file", "in.jsonl", "--check")
    assert human.out == "2 good, 3 bad; nothing was sent\n"
    assert "line 4: $.receivers[1]:" in human.err


def test_lines_can_come_from_standard_input(hongyan: Run, kafka: str) -> None:
    said = hongyan("send", "--file", "-", "--json", stdin=json.dumps(GOOD).encode() + b"\n")
    assert said.json["sent"] == 1


def test_what_is_missing_is_filled_in_and_what_is_there_is_kept() -> None:
    bad: list[BadLine] = []
    line = json.dumps({**GOOD, "created_at": 5}).encode()
    first, second = read_lines([line, json.dumps(GOOD).encode()], bad, now_ms=1_000)
    assert first.notification.created_at == 5
    assert second.notification.created_at == 1_000
    assert first.notification.id != second.notification.id
    assert bad == []


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--lane", "sms.*", "--to", "x", "--content", "{}"], "names 3 lanes; name one"),
        (["--lane", "sms.notice", "--to", "x"], "give either --template or --content"),
        (["--lane", "sms.notice", "--to", "x", "--content", "[]"], "must be a JSON object"),
        (["--lane", "sms.notice", "--to", "x", "--content", "{"], "--content is not JSON"),
        (
            ["--lane", "sms.notice", "--to", "x", "--template", "t", "--param", "x"],
            "write KEY=VALUE",
        ),
        (["--lane", "sms.notice", "--content", "{}"], "receivers"),
    ],
)
def test_flags_that_make_no_notification_are_said_in_one_sentence(
    hongyan: Run, flags: list[str], sentence: str
) -> None:
    said = hongyan("send", "--check", *flags)
    assert said.code == 2
    assert sentence in said.err


def test_without_kafka_nothing_is_sent_and_it_is_said(
    hongyan: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HONGYAN_KAFKA__BOOTSTRAP", "127.0.0.1:1")
    monkeypatch.setattr(clients, "_LIST_S", 0.5)
    said = hongyan("send", "--lane", "sms.notice", "--to", "x", "--content", "{}")
    assert said.code == 1
    assert "Kafka at 127.0.0.1:1 did not answer" in said.err


def test_a_topic_that_is_not_there_is_said_at_once(
    hongyan: Run, kafka_bootstrap: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HONGYAN_KAFKA__BOOTSTRAP", kafka_bootstrap)
    monkeypatch.setenv("HONGYAN_KAFKA__TOPIC_PREFIX", topic_prefix)
    said = hongyan("send", "--lane", "sms.notice", "--to", "x", "--content", "{}", "--json")
    assert said.code == 1
    assert said.json["failed"][0]["cause"] == "no such topic; run `hongyan topics apply`"


def test_the_example_notifications_are_all_good(hongyan: Run) -> None:
    file = ROOT / "examples" / "notifications.jsonl"
    assert hongyan("send", "--check", "--file", str(file)).out.startswith("3,000 good, 0 bad")
    assert not any("created_at" in json.loads(line) for line in file.read_bytes().splitlines())


ACCOUNTS = """
[accounts.app]
provider = "wecom"
[accounts.ops-robot]
provider = "wecom_robot"
group = "ops"
[accounts.talk]
provider = "dingtalk_robot"
group = "ops"
"""


def check(hongyan: Run, *flags: str) -> tuple[int, str]:
    said = hongyan("send", *flags, "--content", '{"text": "hi"}', "--check")
    return said.code, said.out + said.err


def test_a_receiver_that_no_account_reaches_is_told_before_it_is_sent(
    hongyan: Run, folder: Path
) -> None:
    with (folder / "hongyan.toml").open("a") as file:
        file.write(ACCOUNTS)
    for lane, receiver in (("wecom", "li"), ("wecom", "group:ops"), ("dingtalk", "group:ops")):
        assert check(hongyan, "--lane", f"{lane}.notice", "--to", receiver)[0] == 0
    assert check(hongyan, "--lane", "feishu.notice", "--to", "group:ops")[0] == 0, "no account"
    code, said = check(hongyan, "--lane", "dingtalk.notice", "--to", "group:ops", "--to", "li")
    assert code != 0
    assert "$.receivers[1]: no account of dingtalk reaches it (talk reaches group:ops); " in said
    assert "a group is written group:NAME, and a person needs an application's account" in said
    code, said = check(hongyan, "--lane", "wecom.notice", "--to", "group:sales")
    assert code != 0
    assert (
        "no account of wecom reaches it (app reaches persons, ops-robot reaches group:ops)" in said
    )
    assert "sales" not in said
    code, said = check(hongyan, "--lane", "wecom.notice", "--to", "li", "--account", "ops-robot")
    assert code != 0
    assert "(ops-robot reaches group:ops)" in said


SMS = """
[accounts.main]
provider = "aliyun_sms"
access_key_id = "id"
sign_name = "鸿雁"
"""
TEMPLATES = """
[templates.login-code]
channel = "sms"
template_id = "SMS_123"
params = { code = "{{ code }}" }
variables = { code = "string" }
"""


def test_a_wrong_number_is_refused_before_the_send(hongyan: Run, kafka: str, folder: Path) -> None:
    with (folder / "hongyan.toml").open("a") as file:
        file.write(SMS)
    flags = ("send", "--lane", "sms.notice", "--template", "SMS_1", "--to", "+8613800000002")
    assert hongyan(*flags, "--check").code == 0
    said = hongyan(*flags, "--to", "138")
    assert said.code == 2
    assert "$.receivers[1]: give the receiver in E.164, such as +" in said.err
    line = {**GOOD, "template": {"id": "SMS_1"}, "content": None, "receivers": ["138"]}
    (folder / "in.jsonl").write_text(json.dumps(line))
    said = hongyan("send", "--file", "in.jsonl", "--json")
    assert said.code == 1
    assert [(b["code"], b["path"]) for b in said.json["bad"]] == [("bad_number", "$.receivers[0]")]
    assert hongyan(*flags, "--account", "other").code == 2


def test_a_template_is_tried_before_the_send(hongyan: Run, folder: Path) -> None:
    (folder / "templates.toml").write_text(TEMPLATES)
    flags = ("send", "--check", "--lane", "sms.notice", "--to", "+8613800000001", "--template")
    assert hongyan(*flags, "login-code", "--param", "code=4711").err == ""
    assert "code: is missing" in hongyan(*flags, "login-code").err
    said = hongyan(*flags, "login-cod", "--param", "code=4711")
    assert said.code == 0
    assert said.err.startswith("warning: there is no template 'login-cod' (did you mean")
    told = hongyan(*flags, "login-cod", "--json")
    assert "did you mean 'login-code'" in told.json["warnings"][0]
    mail = ("send", "--check", "--lane", "email.notice", "--to", "a@example.com")
    assert hongyan(*mail, "--template", "order-paid").code == 2


def test_the_ids_of_a_send_are_printed_with_the_delivery_keys(hongyan: Run, kafka: str) -> None:
    flags = ("send", "--lane", "push.notice", "--to", "token-1", "--to", "token-2", "--id", "m[7]")
    said = hongyan(*flags, "--content", '{"text":"hi"}')
    assert said.code == 0
    keys = [delivery_key("m[7]", "push", receiver) for receiver in ("token-1", "token-2")]
    lines = said.out.splitlines()
    assert lines[0].startswith("sent m[7]  hongyan.dispatch.push.notice/")
    assert lines[1:] == [f"  → to***-1  {keys[0]}", f"  → to***-2  {keys[1]}"]
    told = hongyan(*flags, "--content", "{}", "--json").json
    assert [one["delivery_key"] for one in told["notifications"][0]["deliveries"]] == keys


def test_a_broker_that_goes_away_is_told_within_a_deadline() -> None:
    outcome = EnqueueOutcome()
    lines = [json.dumps({**GOOD, "id": f"m-{number}"}).encode() for number in range(20_001)]
    with EmbeddedKafka() as cluster:
        settings = KafkaSettings(bootstrap=cluster.bootstrap)
        sender = NotificationSender(settings, outcome, deadline_s=0.3)
        with paused(cluster):
            *some, last = read_lines(lines, [])
            for one in some:
                sender.send(one)
            with pytest.raises(clients.KafkaUnavailable, match=r"within 0\.3 s, and the buffer is"):
                sender.send(last)
            sender.finish(0.1)
    assert (outcome.sent, outcome.in_doubt, outcome.failed) == (0, 20_000, [])
    assert not outcome.ok
