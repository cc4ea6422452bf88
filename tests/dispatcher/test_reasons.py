"""Every gate's reason stands in the table, and one that does not ends no worker."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from backends.metrics import worker_families
from dispatcher.metrics import Metrics
from dispatcher.pipeline import gates as gates
from dispatcher.pipeline.telemetry import WorkerTelemetry
from dispatcher.pipeline.work import AlreadyKnown, Drop, EndedAtClaim
from message.reasons import (
    BY_CODE,
    DROP_CODES,
    GATE_REASONS,
    INTAKE,
    IntakeEnd,
    code_of,
    resend_of_dropped,
)
from message.states import State
from policy.gates import QuietAction
from policy.schema import LanePolicy
from policy.validation import GATES
from sending.runtime.clock import Clock
from tests.dispatcher.pipeline.test_gates import DEDUP, ONE_AN_HOUR, QUIET, Bench
from tests.dispatcher.pipeline.test_telemetry import Kept
from tracing.events import Stage

ROOT = Path(__file__).parents[2]
DROPPING = msgspec.structs.replace(QUIET, action=QuietAction.DROP)
DECIDING = {
    "quiet_hours": (Bench(quiet_hours=QUIET), Bench(quiet_hours=DROPPING)),
    "frequency": (Bench(frequency=ONE_AN_HOUR),),
    "dedup": (Bench(dedup=DEDUP),),
}
"""Gates that stop the second of two equal deliveries. A new gate needs an entry here."""


def test_every_gate_of_the_policy_is_tried_here() -> None:
    unlike = {name for name in LanePolicy.__struct_fields__ if name in GATES}
    assert set(GATES) == unlike == set(DECIDING)


@pytest.mark.parametrize("gate", GATES)
def test_each_gate_gives_a_reason_of_the_table(gate: str) -> None:
    for bench in DECIDING[gate]:
        bench.judge(bench.work())
        (reason,) = bench.judge(bench.work())
        assert reason is not None
        assert BY_CODE[code_of(reason)].gate == gate


def test_every_verdict_that_drops_has_its_reason_in_the_table() -> None:
    assert set(gates._DROPS.values()) <= set(GATE_REASONS)
    assert {row.gate for row in INTAKE if row.gate} == set(GATES)


def test_every_template_error_has_its_reason_in_the_table() -> None:
    made = re.compile(r'(?:TemplateError|_error)\(\s*"(\w+)"')
    texts = [file.read_text("utf-8") for file in (ROOT / "policy/templates").glob("*.py")]
    codes = {code for text in texts for code in made.findall(text)}
    assert len(codes) > 3
    assert codes <= BY_CODE.keys()


class _Curfew(gates.SendGates):
    """As one who adds a gate and forgets the table."""

    def _keep_quiet(self, works: object) -> None:
        for work in works:  # type: ignore[attr-defined]
            work.intent = Drop("curfew: nobody goes out")


def test_a_reason_that_nobody_entered_is_counted_under_its_own_name() -> None:
    bench = Bench(quiet_hours=DROPPING)
    bench.gates.__class__ = _Curfew
    assert bench.judge(bench.work()) == ["curfew: nobody goes out"]
    assert bench.shown(worker_families.GATES_DROPPED, reason="curfew") == 1
    end = EndedAtClaim(State.DROPPED, "curfew: nobody goes out")
    assert reported(end) == (Stage.DROPPED, "DROPPED")


def reported(end: EndedAtClaim | AlreadyKnown) -> tuple[str, str]:
    """The trace's stage, and the outcome under which it counts."""
    kept, metrics, work = Kept(), Metrics(), Bench().work()
    report = WorkerTelemetry(kept, metrics, clock=Clock(), worker="w")
    work.end = end
    report.ended([work])
    (sample,) = (
        one
        for family in metrics.registry.collect()
        for one in family.samples
        if one.name in ("hongyan_settled_total", "hongyan_duplicates_total") and one.value
    )
    return kept.events[0].stage, sample.labels.get("outcome", "duplicate")


def test_a_hold_that_nobody_entered_is_reported_as_held() -> None:
    assert reported(EndedAtClaim(State.RETRY, "curfew")) == (Stage.HELD, "RETRY")


@pytest.mark.parametrize(
    ("end", "stage", "outcome"),
    [
        (EndedAtClaim(State.EXPIRED, "ttl_at_intake"), Stage.EXPIRED, "EXPIRED"),
        (EndedAtClaim(State.RETRY, "behind"), Stage.BEHIND, "RETRY"),
        (EndedAtClaim(State.RETRY, "receiver_limit"), Stage.HELD, "RETRY"),
        (EndedAtClaim(State.DROPPED, "receiver_limit"), Stage.DROPPED, "DROPPED"),
        (EndedAtClaim(State.RETRY, "quiet_hours"), Stage.HELD, "RETRY"),
        (EndedAtClaim(State.DROPPED, "quiet_hours"), Stage.DROPPED, "DROPPED"),
        (EndedAtClaim(State.DROPPED, "recalled"), Stage.DROPPED, "DROPPED"),
        (EndedAtClaim(State.PARKED, "variable_missing: v"), Stage.PARKED, "PARKED"),
        (AlreadyKnown(State.SENT, "conflict"), Stage.CONFLICT, "duplicate"),
        (AlreadyKnown(State.SENT, "duplicate"), Stage.DUPLICATE, "duplicate"),
        (AlreadyKnown(State.SENT, "duplicate_prefilter"), Stage.DUPLICATE, "duplicate"),
        (AlreadyKnown(None, "duplicate_prefilter"), Stage.DUPLICATE, "duplicate"),
        (AlreadyKnown(None, "conflict"), Stage.CONFLICT, "duplicate"),
    ],
)
def test_what_ends_at_intake_is_reported_by_its_end(
    end: EndedAtClaim | AlreadyKnown, stage: str, outcome: str
) -> None:
    assert reported(end) == (stage, outcome)


def test_the_page_lists_the_table() -> None:
    page = (ROOT / "docs" / "trace.md").read_text("utf-8")
    rows = [
        f"| `{row.code}` | {row.end.value} | {f'`{row.gate}`' if row.gate else ''}"
        f" | {row.mender.value} | {row.text} |"
        for row in INTAKE
    ]
    assert "\n".join(rows) in page, "\n".join(rows)


def test_the_page_about_resend_lists_what_can_be_done_about_each_dropped_reason() -> None:
    page = (ROOT / "docs" / "recovery.md").read_text("utf-8")
    rows = [f"| `{code}` | {resend_of_dropped(code)} |" for code in DROP_CODES]
    assert "\n".join(rows) in page, "\n".join(rows)
    dropping = {row.code for row in INTAKE if row.end is IntakeEnd.DROPPED}
    assert dropping | {row.code for row in INTAKE if row.gate} <= set(DROP_CODES)
