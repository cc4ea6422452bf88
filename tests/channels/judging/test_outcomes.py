"""Status and failure to outcome: the mapping of design section 7, row by row and at random."""

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.channel import Failure, Phase
from channels.judging.outcomes import of_failure, refusal
from message.outcomes import AnyOutcome, Limit, NotSent, Rejected, Unknown

NOW_S = 1_700_000_000.0


def mapped(status: int, **headers: str) -> AnyOutcome | None:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return refusal(httpx.Response(status, headers=named), NOW_S)


@pytest.mark.parametrize("status", [408, 425, 429])
def test_come_back_later_is_not_sent(status: int) -> None:
    assert isinstance(mapped(status), NotSent)
    late = mapped(status, retry_after="7")
    assert isinstance(late, NotSent)
    assert late.retry_after_ms == 7_000


def test_503_is_in_doubt_whether_or_not_it_names_a_time() -> None:
    assert isinstance(mapped(503, retry_after="0"), Unknown)
    assert isinstance(mapped(503), Unknown)


def ours(status: int, **headers: str) -> AnyOutcome | None:
    return refusal(httpx.Response(status, headers=headers), NOW_S, own_protocol=True)


def test_in_our_own_protocol_503_with_a_time_paces() -> None:
    paces = ours(503, **{"retry-after": "7"})
    assert isinstance(paces, NotSent)
    assert (paces.retry_after_ms, paces.limit) == (7_000, Limit.ACCOUNT)
    assert isinstance(ours(503), Unknown)
    assert isinstance(ours(503, **{"retry-after": "soon"}), Unknown)


@given(st.integers(100, 999))
def test_in_our_own_protocol_every_status_has_one_class(status: int) -> None:
    found = ours(status)
    if 200 <= status < 300:
        assert found is None
    elif status in (408, 425, 429):
        assert isinstance(found, NotSent)
    elif 300 <= status < 500 and status != 409:
        assert isinstance(found, Rejected)
    else:
        assert isinstance(found, Unknown)


def test_conflict_is_in_doubt() -> None:
    assert isinstance(mapped(409), Unknown)
    assert isinstance(mapped(409, retry_after="1"), Unknown)


@given(st.integers(100, 999), st.booleans())
def test_every_status_has_one_class(status: int, waits: bool) -> None:
    found = mapped(status, **({"retry_after": "1"} if waits else {}))
    if 200 <= status < 300:
        assert found is None
    elif 400 <= status < 500 and status != 409:
        assert isinstance(found, NotSent)
    else:
        assert isinstance(found, Unknown)
    if found is not None:
        assert not hasattr(found, "code") or found.code == f"http_{status}"


@pytest.mark.parametrize(
    ("phase", "kind"), [(Phase.NOT_WRITTEN, NotSent), (Phase.WRITTEN, Unknown)]
)
@given(code=st.sampled_from(["connect", "dns", "tls", "timeout", "reset", "protocol"]))
def test_a_failure_is_judged_by_its_phase_alone(
    phase: Phase, kind: type[AnyOutcome], code: str
) -> None:
    assert type(of_failure(Failure(phase, code))) is kind
