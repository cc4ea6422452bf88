"""The provider simulator in its own process: the oracle other tests rest on."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest

from channels.channel import Account, Attempt, Call, Failure, Resolution
from channels.engine import Engine
from channels.http_client.transport import Transport
from channels.providers.webhook.adapter import WebhookChannel, WebhookOptions
from message.outcomes import Accepted, AnyOutcome, NotSent, Rejected, Unknown
from simulator import (
    ECHOING,
    Faults,
    LedgerRecord,
    Report,
    Simulator,
    SimulatorError,
    read_ledger,
    report_of,
    spawn,
)
from simulator.servers.certificates import Authority
from tests.channels.calls import delivery

CHANNEL = WebhookChannel()


def named(value: object) -> str:
    """Ids of parametrized tests: faults without their defaults, classes by name."""
    return value.__name__ if isinstance(value, type) else msgspec.json.encode(value).decode()


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[Simulator]:
    with spawn(tmp_path, lists=ECHOING) as simulator:
        yield simulator


@pytest.fixture
def transport() -> Iterator[Transport]:
    transport = Transport()
    yield transport
    transport.close()


class Sender:
    """Sends deliveries by number to one simulator."""

    def __init__(self, provider: Simulator, transport: Transport) -> None:
        options = WebhookOptions(status_query=True, query_lag_s=0)
        self.account = Account("main", "webhook", f"{provider.url}/hook", options)
        self.transport = transport
        self.engine = Engine(transport)

    def send(self, number: int = 1, timeout_s: float = 5.0, attempt: int = 1) -> AnyOutcome:
        one = delivery(message_id=f"m-{number}", attempt=attempt)
        (outcome,) = self.engine.send(CHANNEL, Call(self.account, (one,)), timeout_s)
        return outcome

    def ask(self, number: int = 1) -> Resolution:
        attempt = Attempt(delivery(message_id=f"m-{number}"), called_at=1, now=2)
        found = self.engine.resolve(CHANNEL, self.account, attempt, 5.0)
        assert found is not None
        return found.resolution


@pytest.fixture
def sender(provider: Simulator, transport: Transport) -> Sender:
    return Sender(provider, transport)


def key(number: int = 1) -> str:
    return delivery(message_id=f"m-{number}").key


def test_what_it_accepts_is_in_its_ledger_and_its_report(
    provider: Simulator, sender: Sender
) -> None:
    assert sender.send() == Accepted("sim-1")
    (record,) = provider.records()
    assert (record.seq, record.key, record.id, record.receiver) == (1, key(), "m-1", "user-1")
    assert (record.attempt, record.accepted, record.answer) == (1, True, "200")
    seen = provider.seen(key())
    assert seen is not None
    assert (seen.requests, seen.accepted, seen.attempts) == (1, 1, [1])
    assert provider.report() == provider.ledger_report()


def test_doubles_are_seen(provider: Simulator, sender: Sender) -> None:
    sender.send(1)
    sender.send(2)
    sender.send(1, attempt=2)
    summary = provider.report(summary_only=True).summary
    assert (summary.requests, summary.accepted, summary.accepted_keys) == (3, 3, 2)
    assert summary.doubled == [key(1)]


def test_with_dedup_a_key_is_accepted_once_and_answered_alike(
    provider: Simulator, sender: Sender
) -> None:
    provider.control(dedup=True)
    assert [sender.send(), sender.send(attempt=2)] == [Accepted("sim-1")] * 2
    seen = provider.seen(key())
    assert seen is not None
    assert (seen.accepted, seen.answers) == (1, {"200": 1, "duplicate": 1})


@pytest.mark.parametrize(
    ("faults", "kind", "accepted"),
    [
        (Faults(reset=1), Unknown, 1),
        (Faults(close=1), Unknown, 1),
        (Faults(hang=1), Unknown, 1),
        (Faults(drip=1, drip_ms=50), Unknown, 1),
        (Faults(latency_ms="10000"), Unknown, 1),
        (Faults(drop=1), Unknown, 0),
        (Faults(errors={"500": 1}), Unknown, 0),
        (Faults(errors={"500": 1}, accept_errors=True), Unknown, 1),
        (Faults(errors={"503": 1}, retry_after="3"), NotSent, 0),
        (Faults(errors={"429": 1}), NotSent, 0),
        (Faults(errors={"400": 1}), Rejected, 0),
        (Faults(errors={"302": 1}), Rejected, 0),
        (Faults(latency_ms="1-2"), Accepted, 1),
        (Faults(latency_ms="p50=1,p99=2"), Accepted, 1),
    ],
    ids=named,
)
def test_every_fault_is_seen_by_the_sender_and_told_by_the_ledger(
    provider: Simulator, sender: Sender, faults: Faults, kind: type[AnyOutcome], accepted: int
) -> None:
    provider.control(rules=[faults])
    assert type(sender.send(timeout_s=0.3 if kind is Unknown else 5.0)) is kind
    seen = provider.seen(key())
    assert seen is not None
    assert (seen.requests, seen.accepted) == (1, accepted)
    expected = Resolution.SENT if accepted else Resolution.NOT_SENT
    assert sender.ask() is expected


def test_rules_choose_by_path_and_receiver(provider: Simulator, sender: Sender) -> None:
    provider.control(
        rules=[
            Faults(path="/other", errors={"400": 1}),
            Faults(receiver="user-9", errors={"429": 1}),
            Faults(method="GET", errors={"503": 1}),
        ]
    )
    assert isinstance(sender.send(), Accepted)
    assert sender.ask() is Resolution.ASK_LATER
    sender.account = Account("main", "webhook", f"{provider.url}/other/x")
    assert isinstance(sender.send(), Rejected)


def test_a_seed_decides_each_keys_fate_whatever_comes_between(
    tmp_path: Path, transport: Transport
) -> None:
    def fates(folder: str, numbers: list[int]) -> dict[str, str]:
        (tmp_path / folder).mkdir()
        rules = [Faults(errors={"500": 0.5})]
        with spawn(tmp_path / folder, seed="7", rules=rules) as provider:
            sender = Sender(provider, transport)
            for number in numbers:
                sender.send(number)
            return {record.key: record.answer for record in provider.records()}

    forward, backward = fates("a", list(range(40))), fates("b", list(reversed(range(40))))
    assert forward == backward
    assert set(forward.values()) == {"200", "500"}


def test_refusing_new_connections_begins_and_ends_at_once(
    provider: Simulator, sender: Sender
) -> None:
    for _ in range(20):
        provider.control(refuse_new=True)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", httpx.URL(provider.url).port or 0))
        provider.control(refuse_new=False)
        assert isinstance(sender.send(), Accepted)


def test_a_kill_leaves_a_readable_ledger_that_the_next_run_goes_on_with(
    tmp_path: Path, transport: Transport
) -> None:
    with spawn(tmp_path) as first:
        sender = Sender(first, transport)
        for number in range(50):
            assert isinstance(sender.send(number), Accepted)
        first.kill()
        assert first.ledger_report().summary.accepted == 50
    with first.ledger.open("ab") as ledger:
        ledger.write(b'{"seq":51,"key":"torn')
    assert len(list(read_ledger(first.ledger))) == 50
    with spawn(tmp_path, lists=ECHOING) as second:
        sender = Sender(second, transport)
        assert sender.ask(7) is Resolution.SENT
        assert sender.send(50) == Accepted("sim-51")
        assert [record.seq for record in second.records()] == list(range(1, 52))


def test_a_kill_under_load_forgets_nothing_that_was_answered(
    tmp_path: Path, transport: Transport
) -> None:
    with spawn(tmp_path) as provider:
        sender = Sender(provider, transport)
        answered = []
        for number in range(200):
            if number == 150:
                os.kill(provider.pid, signal.SIGKILL)
            if isinstance(sender.send(number), Accepted):
                answered.append(key(number))
        provider.kill()
    kept = {record.key for record in provider.records() if record.accepted}
    assert len(answered) >= 150
    assert set(answered) <= kept


def test_sigterm_ends_it_well_and_leaves_the_report(tmp_path: Path, transport: Transport) -> None:
    file = tmp_path / "report.json"
    with spawn(tmp_path, report=str(file)) as provider:
        Sender(provider, transport).send()
        assert provider.stop() == 0
        assert provider.stop() == 0
    assert msgspec.json.decode(file.read_bytes(), type=Report) == provider.ledger_report()


def test_order_can_be_checked_by_sequence(provider: Simulator, sender: Sender) -> None:
    for number in (3, 1, 2):
        sender.send(number)
    assert [(r.seq, r.id) for r in provider.records()] == [(1, "m-3"), (2, "m-1"), (3, "m-2")]


@pytest.mark.parametrize(
    "changes",
    [
        {"rules": [Faults(latency_ms="soon")]},
        {"rules": [Faults(latency_ms="9-1")]},
        {"rules": [Faults(latency_ms="p50=9,p99=1")]},
        {"rules": [Faults(reset=0.6, close=0.6)]},
        {"rules": [Faults(errors={"99": 1})]},
    ],
    ids=named,
)
def test_rules_that_cannot_be_played_are_refused_and_change_nothing(
    provider: Simulator, sender: Sender, changes: dict[str, object]
) -> None:
    with pytest.raises(SimulatorError, match=r"rules\[0\]"):
        provider.control(**changes)
    assert isinstance(sender.send(), Accepted)


def test_a_request_without_a_key_is_refused(provider: Simulator) -> None:
    for headers, body in (({}, b"{}"), ({"Idempotency-Key": "k"}, b"no json")):
        answer = httpx.post(provider.url, headers=headers, content=body, trust_env=False)
        assert answer.status_code == 400
    assert list(provider.records()) == []


def test_unknown_keys_and_paths_are_not_found(provider: Simulator) -> None:
    assert provider.seen("nobody") is None
    assert httpx.get(f"{provider.url}/hook/nobody", trust_env=False).status_code == 404
    assert httpx.get(f"{provider.admin}/elsewhere", trust_env=False).status_code == 404
    assert httpx.get(f"{provider.url}/_report", trust_env=False).status_code == 404


def test_it_says_where_it_is_to_people_and_to_programs(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "simulator", "--ledger", str(tmp_path / "l.jsonl")]
    for extra, start in (((), "Provider on http://127.0.0.1:"), (("--json",), '{"url":"http://')):
        process = subprocess.Popen([*command, *extra], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline().startswith(start)
        process.terminate()
        assert process.wait(10) == 0
        process.stdout.close()


@pytest.mark.parametrize("flags", [["--latency", "soon"], ["--reset", "2"], ["--rules", "/none"]])
def test_flags_that_make_no_sense_end_with_2(flags: list[str]) -> None:
    command = [sys.executable, "-m", "simulator", *flags]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "error: " in ended.stderr


def test_a_port_that_is_taken_is_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "simulator", "--port", port]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert len(ended.stderr.strip().splitlines()) == 1


def test_an_offline_report_counts_as_the_running_one() -> None:
    def record(seq: int, *, accepted: bool, answer: str) -> LedgerRecord:
        return LedgerRecord(
            seq=seq,
            at_ms=seq,
            key="k",
            path="/",
            id="m",
            receiver="r",
            attempt=seq,
            digest=f"d{seq}",
            accepted=accepted,
            answer=answer,
        )

    report = report_of(
        [
            record(1, accepted=False, answer="500"),
            record(2, accepted=True, answer="reset"),
            record(3, accepted=True, answer="200"),
        ]
    )
    (seen,) = report.keys
    assert (seen.requests, seen.accepted, seen.attempts) == (3, 2, [1, 2, 3])
    assert (seen.provider_id, seen.first_seq, seen.last_seq) == ("sim-2", 1, 3)
    assert report.summary.doubled == ["k"]
    assert report.summary.answers == {"500": 1, "reset": 1, "200": 1}


def test_a_sender_that_was_refused_has_sent_nothing(provider: Simulator) -> None:
    provider.control(refuse_new=True)
    transport = Transport()
    assert isinstance(Sender(provider, transport).send(), NotSent)
    transport.close()
    assert list(provider.records()) == []


def test_a_failure_names_what_happened(provider: Simulator, sender: Sender) -> None:
    provider.control(rules=[Faults(reset=1)])
    request = CHANNEL.request(Call(sender.account, (delivery(),)))
    answer = sender.transport.send(request)
    assert isinstance(answer, Failure)
    assert answer.code == "reset"


def test_it_serves_tls_with_a_given_certificate(tmp_path: Path, transport: Transport) -> None:
    authority = Authority(tmp_path)
    with spawn(tmp_path, certificate=str(authority.certificate("127.0.0.1"))) as provider:
        assert provider.url.startswith("https://127.0.0.1:")
        account = Account("main", "webhook", f"{provider.url}/hook", ca_file=str(authority.file))
        for number in range(2):
            call = Call(account, (delivery(f"m{number}"),))
            assert Engine(transport).send(CHANNEL, call, 5.0) == [Accepted(f"sim-{number + 1}")]
        assert provider.report().summary.requests == 2


def test_an_answer_that_is_the_last_of_its_connection_says_so(tmp_path: Path) -> None:
    with spawn(tmp_path, close_after=2) as provider, httpx.Client(trust_env=False) as client:
        said = [client.get(f"{provider.url}/hook/k").headers.get("connection") for _ in range(4)]
    assert said == [None, "close", None, "close"]


def test_an_idle_connection_is_closed_after_the_limit(tmp_path: Path) -> None:
    with spawn(tmp_path, idle_close_ms=50) as provider:
        url = httpx.URL(provider.url)
        with socket.create_connection((url.host, url.port or 0), timeout=10) as connection:
            connection.sendall(b"GET /hook/k HTTP/1.1\r\nHost: a\r\n\r\n")
            assert connection.recv(65_536).startswith(b"HTTP/1.1 404")
            assert connection.recv(1) == b""
