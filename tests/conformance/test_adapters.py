"""Every adapter against its provider's simulator, over sockets: each row of each error table.

What an adapter says of a call is compared with what the simulator wrote down of it: the outcome may
never claim more than happened, nor less.
"""

import io
import json
import re
import socket
from collections.abc import Iterator, Sequence
from itertools import count
from time import time

import msgspec
import pytest
import structlog

from channels.channel import Account, Attempt, Call, Channel, Resolution, ResolveResult
from channels.engine import Engine
from channels.judging.error_table import ErrorRow
from channels.probe.probe import ExchangeRecorder, OwnTokens
from channels.registry import PROVIDERS
from channels.secret import Secret
from channels.transports import TransportRouter
from message.delivery import Delivery, deliveries_of
from message.outcomes import Accepted, AnyOutcome, NotSent, Rejected, Unknown
from simulator import ECHOING, Faults, LedgerRecord, Simulator
from tests.conformance.samples import UNLIMITED, WITHOUT, Sample, sample, samples
from tests.harness.simulators import spawn

KINDS: dict[str, type[AnyOutcome]] = {"rejected": Rejected, "not_sent": NotSent, "unknown": Unknown}
TIMEOUT_S = 5.0
HOUR_MS = 3_600_000
SAMPLES = {one.provider: one for one in samples()}
numbers = count(1)
"""No two tests send the same thing: dedup windows and limits of a provider see each of them anew."""


class Peer:
    """One adapter, its account at the simulator, and what goes between them."""

    def __init__(self, of: Sample, simulator: Simulator, wires: TransportRouter) -> None:
        self.sample = of
        self.channel: Channel = of.channel
        self.simulator = simulator
        self.account: Account = of.account(of.address(simulator))
        self.recorder = ExchangeRecorder(wires)
        self.tokens = OwnTokens(self.recorder, TIMEOUT_S)
        self.engine = Engine(self.recorder, self.tokens)

    def call(self, size: int = 1, account: Account | None = None) -> Call:
        """A call for so many receivers, made ready as a lane does."""
        each = [self.sample.notification(next(numbers)) for _ in range(size)]
        receivers = [one.receivers[0] for one in each]
        whole = msgspec.structs.replace(each[0], receivers=receivers)
        expires_at = int(time() * 1_000) + HOUR_MS
        deliveries = deliveries_of(whole, b"", expires_at=expires_at)
        for one in deliveries:
            one.attempt, one.account, one.call_key = 1, self.sample.provider, deliveries[0].key
        return Call(account or self.account, deliveries)

    def send(self, call: Call, *rules: Faults, timeout_s: float = TIMEOUT_S) -> list[AnyOutcome]:
        """Under these rules, which hold until the next call of `send`."""
        self.simulator.control(rules=list(rules))
        return self.engine.send(self.channel, call, timeout_s)

    def resolve(self, delivery: Delivery, called_at: int) -> ResolveResult | None:
        """An hour later: whatever lag the provider has is over."""
        attempt = Attempt(delivery, called_at=called_at, now=called_at + HOUR_MS)
        return self.engine.resolve(self.channel, self.account, attempt, TIMEOUT_S)

    def seen(self, before: int) -> list[LedgerRecord]:
        """What the simulator wrote down since it had so many records."""
        return list(self.simulator.records())[before:]

    def so_far(self) -> int:
        return len(list(self.simulator.records()))

    def wire_name(self, delivery: Delivery) -> str:
        """How the provider spells this receiver."""
        before = self.so_far()
        again = Call(self.account, [msgspec.structs.replace(delivery, call_key="")])
        self.send(again)
        (record,) = self.seen(before)
        return record.receiver


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulator]:
    with spawn(
        tmp_path_factory.mktemp("simulator"),
        fsync=False,
        smtp_port=0,
        lists=ECHOING,
        behaviours=UNLIMITED,
    ) as started:
        yield started


@pytest.fixture(scope="module")
def wires() -> Iterator[TransportRouter]:
    opened = TransportRouter()
    yield opened
    opened.close()


@pytest.fixture(params=SAMPLES)
def peer(request: pytest.FixtureRequest, simulator: Simulator, wires: TransportRouter) -> Peer:
    return Peer(SAMPLES[request.param], simulator, wires)


def peer_of(provider: str, simulator: Simulator, wires: TransportRouter) -> Peer:
    return Peer(SAMPLES[provider], simulator, wires)


def rows() -> list[object]:
    """Every row of every table that a request can bring about."""
    return [
        pytest.param(one.provider, row, id=f"{one.provider}-{row.code}")
        for one in SAMPLES.values()
        for row in one.channel.errors
        if row.code not in one.unreachable
    ]


@pytest.mark.parametrize("provider", sorted(PROVIDERS.keys() - WITHOUT))
def test_every_provider_has_a_sample(provider: str) -> None:
    assert sample(provider) is not None


@pytest.mark.parametrize("provider", SAMPLES)
def test_samples_speak_of_rows_that_are_there(provider: str) -> None:
    one = SAMPLES[provider]
    codes = {row.code for row in one.channel.errors}
    assert one.per_receiver <= codes
    assert one.unreachable.keys() <= codes
    assert not one.per_receiver & one.unreachable.keys()
    assert all(reason.strip() for reason in one.unreachable.values())
    assert codes - one.unreachable.keys()


@pytest.mark.parametrize(("provider", "row"), rows())
def test_each_documented_error_is_what_its_row_says(
    provider: str, row: ErrorRow, simulator: Simulator, wires: TransportRouter
) -> None:
    peer = peer_of(provider, simulator, wires)
    code = peer.sample.code_for(row.code)
    rates = {code: 1.0}
    rule = (
        Faults(receiver_codes=rates)
        if row.code in peer.sample.per_receiver
        else Faults(codes=rates)
    )
    before, call = peer.so_far(), peer.call()
    (outcome,) = peer.send(call, rule)
    assert not any(record.accepted for record in peer.seen(before))
    if refused_token(peer, outcome):
        assert row.kind == "not_sent"
        (outcome,) = peer.channel.outcomes(call, peer.recorder.exchanges[-1].answer)
    detail = getattr(outcome, "detail", "")
    assert outcome == expected(row, code, detail)
    assert detail


def expected(row: ErrorRow, code: str, detail: str) -> AnyOutcome:
    """What a row promises for a code of it."""
    if row.kind == "rejected":
        return Rejected(code, detail, row.account)
    if row.kind == "not_sent":
        return NotSent(code, detail, row.delay_ms, row.account, row.limit)
    return Unknown(code, detail)


def refused_token(peer: Peer, outcome: AnyOutcome) -> bool:
    """Whether the engine made the call twice, since the provider refused the token: nothing was sent."""
    asked = [one.purpose for one in peer.recorder.exchanges]
    if not isinstance(outcome, NotSent) or outcome.code != "token_refused":
        return False
    return outcome.account and asked == ["token", "send", "token", "send"]


def test_what_is_accepted_is_in_the_providers_ledger_once(peer: Peer) -> None:
    before = peer.so_far()
    (outcome,) = peer.send(peer.call())
    assert isinstance(outcome, Accepted)
    assert outcome.provider_id
    (record,) = peer.seen(before)
    assert record.accepted
    assert record.protocol or peer.sample.scheme == "smtp"


def test_a_full_call_is_accepted_for_every_receiver(peer: Peer) -> None:
    size = min(peer.channel.max_batch, 100)
    before = peer.so_far()
    call = peer.call(size)
    assert len(call.deliveries) == size
    outcomes = peer.send(call)
    assert [type(outcome) for outcome in outcomes] == [Accepted] * size
    records = peer.seen(before)
    assert [record.accepted for record in records] == [True] * size
    assert len({record.receiver for record in records}) == size
    assert len({record.call for record in records}) == 1


def test_a_code_that_nobody_documents_is_unknown_unless_its_status_refuses(peer: Peer) -> None:
    code = undocumented(peer)
    assert peer.channel.errors.row(code) is None
    (outcome,) = peer.send(peer.call(), Faults(codes={code: 1.0}))
    assert isinstance(outcome, Rejected if peer.sample.by_status else Unknown)


def undocumented(peer: Peer) -> str:
    """As the provider words its own: numbers, or a name."""
    codes = [row.code.rstrip("*") for row in peer.channel.errors]
    numeric = all(re.fullmatch(r"-?\d+", code) for code in codes)
    return peer.sample.undocumented or ("987654" if numeric else "NeverDocumented")


@pytest.mark.parametrize(
    "fault",
    [Faults(reset=1.0), Faults(close=1.0), Faults(drop=1.0)],
    ids=["reset", "close", "drop"],
)
def test_a_call_without_an_answer_is_unknown(peer: Peer, fault: Faults) -> None:
    peer.send(peer.call())  # the token, so that the fault meets the send
    before = peer.so_far()
    call = peer.call()
    (outcome,) = peer.send(call, fault)
    assert isinstance(outcome, Unknown)
    assert [record.accepted for record in peer.seen(before)] == [not fault.drop]


def test_an_answer_that_is_not_the_providers_is_never_taken_for_a_success(peer: Peer) -> None:
    (outcome,) = peer.send(peer.call(), Faults(errors={"502": 1.0}))
    assert isinstance(outcome, Unknown | NotSent)


def test_a_refused_connection_is_a_definite_non_send(peer: Peer) -> None:
    peer.send(peer.call())  # the token, so that it is the send that is refused
    with socket.socket() as bound:  # bound and not listening: nobody else can take the port
        bound.bind(("127.0.0.1", 0))
        scheme = peer.sample.scheme
        account = peer.sample.account(f"{scheme}://127.0.0.1:{bound.getsockname()[1]}")
        (outcome,) = peer.send(peer.call(account=account))
    assert peer.recorder.exchanges[-1].purpose == "send"
    assert isinstance(outcome, NotSent)
    assert outcome.code != "token_unavailable"


def batches() -> list[str]:
    return [name for name, one in SAMPLES.items() if one.channel.max_batch > 1 and one.per_receiver]


@pytest.mark.parametrize("provider", batches())
@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_bad_receiver_holds_back_and_hides_no_other(
    provider: str, place: int, simulator: Simulator, wires: TransportRouter
) -> None:
    peer = peer_of(provider, simulator, wires)
    call = peer.call(3)
    bad = call.deliveries[place]
    for row in peer.channel.errors:
        if row.code not in peer.sample.per_receiver:
            continue
        code = peer.sample.code_for(row.code)
        name = peer.wire_name(bad)
        before = peer.so_far()
        call = renewed(call)
        outcomes = peer.send(call, Faults(receiver=name, receiver_codes={code: 1.0}))
        said = [type(outcome) for outcome in outcomes]
        wanted = [KINDS[row.kind] if i == place else Accepted for i in range(3)]
        assert said == wanted
        accepted = {record.receiver: record.accepted for record in peer.seen(before)}
        assert accepted.pop(name) is False
        assert list(accepted.values()) == [True, True]


def renewed(call: Call) -> Call:
    """The same receivers in a new notification."""
    first = call.deliveries[0].notification
    whole = msgspec.structs.replace(first, id=f"{first.id}-{next(numbers)}")
    deliveries = deliveries_of(whole, b"", expires_at=call.deliveries[0].expires_at)
    for one in deliveries:
        one.attempt, one.account, one.call_key = 1, call.account.name, deliveries[0].key
    return Call(call.account, deliveries)


def with_query() -> list[str]:
    """Adapters that ask the provider; those that rely on its dedup window are tried there."""
    return [
        name
        for name, one in SAMPLES.items()
        if "resolve" in vars(type(one.channel)) and not one.channel.dedup_window_ms
    ]


def with_window() -> list[str]:
    return [name for name, one in SAMPLES.items() if one.channel.dedup_window_ms]


@pytest.mark.parametrize("provider", with_query())
@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (Faults(reset=1.0), {Resolution.SENT}),
        # That something is not listed may have to wait for longer than an hour to be believed.
        (Faults(drop=1.0), {Resolution.NOT_SENT, Resolution.ASK_LATER}),
    ],
    ids=["accepted", "dropped"],
)
def test_what_is_in_doubt_is_told_by_the_provider_as_it_was(
    provider: str,
    fault: Faults,
    told: set[Resolution],
    simulator: Simulator,
    wires: TransportRouter,
) -> None:
    peer = peer_of(provider, simulator, wires)
    call, called_at = peer.call(), int(time() * 1_000)
    (outcome,) = peer.send(call, fault)
    assert isinstance(outcome, Unknown)
    peer.simulator.control(rules=[])
    found = peer.resolve(call.deliveries[0], called_at)
    assert found is not None
    later = {Resolution.ASK_LATER} if told == {Resolution.SENT} else told
    assert found.resolution in (later if SAMPLES[provider].absence_alone else told)


@pytest.mark.parametrize("provider", sorted({*SAMPLES} - {*with_query(), *with_window()}))
def test_without_query_or_window_nothing_is_promised(
    provider: str, simulator: Simulator, wires: TransportRouter
) -> None:
    peer = peer_of(provider, simulator, wires)
    assert peer.channel.promises.resolve == "none"
    assert peer.resolve(peer.call().deliveries[0], int(time() * 1_000)) is None


@pytest.mark.parametrize("provider", with_window())
def test_a_repeat_inside_the_dedup_window_is_accepted_and_doubles_nothing(
    provider: str, simulator: Simulator, wires: TransportRouter
) -> None:
    peer = peer_of(provider, simulator, wires)
    peer.send(peer.call())  # the token
    call = peer.call()
    before = peer.so_far()
    (first,) = peer.send(call, Faults(reset=1.0))
    assert isinstance(first, Unknown)
    (second,) = peer.send(call)
    assert isinstance(second, Accepted)
    records = peer.seen(before)
    assert [record.accepted for record in records] == [True, False]
    assert len({record.digest for record in records}) == 1


def test_the_same_call_makes_the_same_body(peer: Peer) -> None:
    call = peer.call()
    first, second = (peer.channel.request(call) for _ in range(2))
    assert first.read() == second.read()
    assert peer.channel.fingerprint(call) == peer.channel.fingerprint(call)


def test_what_the_sample_sends_is_not_refused_before_it_is_claimed(peer: Peer) -> None:
    call = peer.call(min(peer.channel.max_batch, 3))
    assert [peer.channel.refusal(peer.account, one) for one in call.deliveries] == [""] * len(
        call.deliveries
    )
    keys = {peer.channel.batch_key(one) for one in call.deliveries}
    assert peer.channel.max_batch == 1 or len(keys) == 1


def test_no_secret_is_seen_in_a_repr_a_log_or_an_outcome(
    peer: Peer, library_log: io.StringIO, capfd: pytest.CaptureFixture[str]
) -> None:
    said: list[object] = [peer.account, peer.call()]
    with structlog.testing.capture_logs() as entries:
        for faults in (
            (),
            (Faults(reset=1.0),),
            (Faults(errors={"500": 1.0}),),
            (Faults(errors={"401": 1.0}),),
            (Faults(codes={undocumented(peer): 1.0}),),
        ):
            said.extend(peer.send(peer.call(), *faults))
        said.append(peer.resolve(peer.call().deliveries[0], int(time() * 1_000)))
    captured = capfd.readouterr()
    shown = "\n".join(
        [repr(said), repr(entries), library_log.getvalue(), captured.out, captured.err]
    )
    for secret in secrets(peer):
        assert secret not in shown
        assert json.dumps(secret)[1:-1] not in shown


def secrets(peer: Peer) -> Iterator[str]:
    """The account's secret options, and the access tokens that were used."""
    found: Sequence[object] = [
        getattr(peer.account.options, name) for name in peer.account.options.__struct_fields__
    ]
    for value in found:
        if isinstance(value, Secret):
            yield from (line for line in value.reveal().splitlines() if len(line) > 3)
    yield from peer.tokens.texts.values()
