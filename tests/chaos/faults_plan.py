"""What a fault run sends and what goes wrong: pure functions of its extent.

Every adapter with a sample gets its deliveries: a third in a lane that sends again what is in doubt, a
third in one that parks it (`unknown`), and a third in one that is `at_most_once`. Of its calls a tenth is
accepted and then reset, and a tenth fails: by the adapter's own codes for calls and for receivers, and by
answers of something that is not the provider.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any, Final

import httpx
import msgspec

from channels.channel import Call, Channel
from channels.judging.error_table import MINUTE, ErrorRow
from message.delivery import deliveries_of
from message.envelope import Notification
from message.outcomes import Limit
from simulator import Faults
from simulator.protocols import PROTOCOLS
from simulator.servers.http_request import Request
from simulator.wire import ProtocolContext, ReceivedCall
from tests.chaos.faults_proofs import TTL_MS, account_table, is_short, life_ms
from tests.conformance.samples import Sample, samples

MESSAGES: Final = 5_000
KINDS: Final[Mapping[str, Mapping[str, str]]] = {
    "notice": {"guarantee": "at_least_once"},
    "verification": {"guarantee": "at_least_once", "unknown": "park"},
    "marketing": {"guarantee": "at_most_once"},
}
"""The policy by kind: each adapter's deliveries are shared out among them."""
RESENT: Final = frozenset({"notice"})
"""The kinds of which a call in doubt is made again, where nothing proves what became of it."""
RESET: Final = 0.10
ERRORS: Final = 0.10
TIMEOUT_MS: Final = 10_000
"""So long that no call is given up for want of a processor: each doubt is then one of the plan."""
ATTEMPTS: Final = 20
_TOGETHER: Final = 4
"""Receivers of one notification, at most."""
_STATUSES: Final = ("500", "502", "520", "580")
"""Of answers that are not the provider's. Of each adapter the first two that are no codes of its own."""
_HIDDEN: Final = {"smtp": frozenset({"455", "555"})}
"""Replies before a receiver is named: they stand for no delivery in the provider's ledger."""
_TESTIMONY: Final = frozenset({"143106", "143206"})
"""They say that the receiver has it already. A provider says so of what is true, rules by chance."""
_WAITS: Final = 20
"""So often a delivery may wait by a code."""
_OF_MANY: Final = frozenset({Limit.ACCOUNT, Limit.PART})
_ACCOUNT_WAITS_MS: Final = 1_000
"""Codes by chance that make an account wait for longer would have it wait for most of the run: a provider
says so of a limit that was met, and is then silent for a minute and not for one call."""
_EVERYTHING: Final = 1_000_000


@dataclass(frozen=True)
class Extent:
    """How much of what."""

    messages: int = MESSAGES
    """Deliveries through each adapter."""
    seed: int = 0
    only: tuple[str, ...] = ()
    """Providers; none: all."""
    patience_ms: int = MINUTE
    """Codes after which a provider wants to be left alone for longer are left out."""
    switched: bool = False
    """The providers show all that an operator may switch on, in place of what they show by default."""


@dataclass(frozen=True)
class Case:
    """One delivery."""

    key: str
    provider: str
    kind: str
    wire: str
    """What the provider's ledger has it under: the receiver, or where the wire names none the key."""


def chosen(extent: Extent) -> list[Sample]:
    """The samples of the run; raises ValueError for a provider that has none."""
    found = {one.provider: one for one in samples()}
    missing = set(extent.only) - set(found)
    if missing:
        known = ", ".join(found)
        raise ValueError(f"no sample of {', '.join(sorted(missing))}; there are {known}")
    return [found[name] for name in extent.only or found]


def lanes_of(chosen: Iterable[Sample]) -> list[str]:
    """The lanes that the run uses."""
    channels = dict.fromkeys(one.channel.channel for one in chosen)
    return [f"{channel}.{kind}" for channel in channels for kind in KINDS]


def policy_of(lanes: Iterable[str], threads: int) -> dict[str, dict[str, Any]]:
    """Retries soon, and breakers that stay shut: a fifth of all calls fails for the whole of the run."""
    lane = {
        "threads": threads,
        "batch": 10,
        "timeout_ms": TIMEOUT_MS,
        "smtp": {"final_ms": TIMEOUT_MS // 2, "total_ms": TIMEOUT_MS},
        "ttl_ms": TTL_MS,
        "max_ttl_ms": TTL_MS,
        "retry": {"attempts": ATTEMPTS, "base_ms": 200, "cap_ms": 2_000},
        "breaker": {"share": 1.0, "min_calls": 100_000},
    }
    return {name: {**lane, **KINDS[name.partition(".")[2]]} for name in lanes}


def accounts_of(
    chosen: Iterable[Sample], addresses: Mapping[str, str], *, switched: bool = False
) -> dict[str, Any]:
    """One account a provider, named as it is, without its provider's limits: the simulator has none, and
    what they are for is held elsewhere. `addresses` are the simulator's by scheme."""
    return {
        one.provider: {
            **account_table(one, switched=switched),
            "provider": one.provider,
            "endpoint": addresses[one.scheme] + one.path,
            "rate_per_s": _EVERYTHING,
            "burst": _EVERYTHING,
        }
        for one in chosen
    }


# ---- traffic ---------------------------------------------------------------------------------------


def traffic(chosen: Sequence[Sample], extent: Extent) -> Iterator[Notification]:
    """Everything, adapters by turns; before it what has little time."""
    hurried = [one for one in chosen if is_short(one.provider)]
    others = [one for one in chosen if not is_short(one.provider)]
    return chain(_by_turns(hurried, extent), _by_turns(others, extent))


def _by_turns(chosen: Sequence[Sample], extent: Extent) -> Iterator[Notification]:
    turns = zip_longest(*(_of(one, extent) for one in chosen))
    return (one for one in chain.from_iterable(turns) if one is not None)


def _of(sample: Sample, extent: Extent) -> Iterator[Notification]:
    luck = random.Random(f"{extent.seed}/{sample.provider}")
    kinds, number = list(KINDS), 0
    while number < extent.messages:
        size = luck.randint(1, _TOGETHER) if luck.random() < 0.5 and _names_receivers(sample) else 1
        size = min(size, extent.messages - number)
        yield _notification(sample, range(number, number + size), luck.choice(kinds), extent)
        number += size


def _notification(sample: Sample, numbers: range, kind: str, extent: Extent) -> Notification:
    receivers = [sample.notification(number).receivers[0] for number in numbers]
    return msgspec.structs.replace(
        sample.notification(numbers.start),
        id=f"{sample.provider}-{extent.seed}-{numbers.start}",
        kind=kind,
        receivers=receivers,
        account=sample.provider,
        created_at=time.time_ns() // 1_000_000,
        ttl_ms=life_ms(sample.provider, extent.messages),
    )


def cases(sample: Sample, notification: Notification) -> list[Case]:
    """The notification's deliveries."""
    found = deliveries_of(notification, b"", expires_at=notification.created_at + TTL_MS)
    kind, provider = notification.kind, sample.provider
    if _names_receivers(sample):
        return [Case(one.key, provider, kind, one.receiver) for one in found]
    (one,) = found
    call = Call(sample.account("http://127.0.0.1"), [one])
    return [Case(one.key, provider, kind, _key_on_the_wire(sample, call))]


def _names_receivers(sample: Sample) -> bool:
    """A group's robot, or an incoming webhook, is told no receiver: its address decides whom it reaches."""
    return sample.channel.reach.group is None


def _key_on_the_wire(sample: Sample, call: Call) -> str:
    """What the provider's ledger will have the call under, as its own protocol reads it."""
    request = sample.channel.request(call)
    told = Request()
    told.method, told.body = request.method, request.read()
    told.target, told.fields = request.url.raw_path, request.headers.raw
    path = request.url.raw_path.partition(b"?")[0].decode().removeprefix(sample.path)
    read = _protocol(sample).read(told, path)
    assert isinstance(read, ReceivedCall), f"{sample.provider} refuses its own sample"
    return read.recipients[0].key


# ---- faults ----------------------------------------------------------------------------------------


def rules(chosen: Iterable[Sample], extent: Extent) -> list[Faults]:
    """Two of each adapter: for what is sent, and for what is asked about it."""
    return [rule for one in chosen for rule in _rules(one, _patience_ms(one, extent))]


def _patience_ms(sample: Sample, extent: Extent) -> int:
    """Several waits in a row must not come near the end of the TTL."""
    return min(extent.patience_ms, life_ms(sample.provider, extent.messages) // _WAITS)


def _rules(sample: Sample, patience_ms: int) -> list[Faults]:
    path = f"/{sample.provider}/"
    rows = [row for row in sample.channel.errors if _fit(sample, row, patience_ms)]
    of_call = [sample.code_for(row.code) for row in _evenly(rows, sample, single=False)]
    of_one = [sample.code_for(row.code) for row in _evenly(rows, sample, single=True)]
    parts = 3 if of_one else 2
    sends = Faults(
        path=path,
        reset=RESET,
        errors=_shares(_statuses(sample.channel), ERRORS / parts),
        codes=_shares(of_call, ERRORS / parts),
        receiver_codes=_shares(of_one, ERRORS / parts),
    )
    asks = Faults(path=path, method="GET", reset=ERRORS / 2, errors={"503": ERRORS / 2})
    return [sends, asks]


def _fit(sample: Sample, row: ErrorRow, patience_ms: int) -> bool:
    """Not what halts the account, is answered with a new token, or takes the provider too long to
    forget."""
    code = sample.code_for(row.code)
    known = row.code in sample.unreachable or code in _HIDDEN.get(sample.provider, frozenset())
    longest_ms = _ACCOUNT_WAITS_MS if row.limit in _OF_MANY else patience_ms
    if known or row.account or code in _TESTIMONY or (row.delay_ms or 0) > longest_ms:
        return False
    if sample.channel.tokens is None or code in sample.per_receiver:
        return True
    said = _protocol(sample).refuse(code)
    answer = httpx.Response(said.status, headers=list(said.fields), content=said.body)
    return not sample.channel.token_refused(answer)


def _evenly(rows: Sequence[ErrorRow], sample: Sample, *, single: bool) -> list[ErrorRow]:
    """As many of each kind as of the rarest, but two at least: most tables are long lists of refusals."""
    fit = [row for row in rows if (row.code in sample.per_receiver) is single]
    kinds = [
        [row for row in fit if row.kind == kind] for kind in ("rejected", "not_sent", "unknown")
    ]
    most = max(2, min((len(kind) for kind in kinds if kind), default=0))
    return [row for kind in kinds for row in kind[:most]]


def _statuses(channel: Channel) -> list[str]:
    return [status for status in _STATUSES if channel.errors.row(status) is None][:2]


def _shares(codes: Sequence[str], share: float) -> dict[str, float]:
    return {code: share / len(codes) for code in codes}


def _protocol(sample: Sample) -> Any:
    return PROTOCOLS[sample.provider](ProtocolContext(now_ms=lambda: time.time_ns() // 1_000_000))


def doubtful(channel: Channel, answer: str) -> bool:
    """Whether an answer, as the provider's ledger words it, leaves open what became of the call."""
    row = channel.errors.row(answer)
    if row is not None:
        return row.kind == "unknown"
    return answer in ("reset", *_STATUSES)
