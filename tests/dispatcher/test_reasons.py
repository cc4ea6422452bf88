"""Every gate's reason stands in the table, and one that does not ends no worker."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from dispatcher.metrics import Metrics
from dispatcher.pipeline import gates as gating
from dispatcher.pipeline.telemetry import WorkerTelemetry
from dispatcher.pipeline.work import Work
from message.reasons import BY_CODE, GATE_REASONS, INTAKE, code_of
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
    assert set(gating._DROPS.values()) <= set(GATE_REASONS)
    assert {row.gate for row in INTAKE if row.gate} == set(GATES)


def test_every_template_error_has_its_reason_in_the_table() -> None:
    made = re.compile(r'(?:TemplateError|_error)\(\s*"(\w+)"')
    texts = [file.read_text("utf-8") for file in (ROOT / "policy/templates").glob("*.py")]
    codes = {code for text in texts for code in made.findall(text)}
    assert len(codes) > 3
    assert codes <= BY_CODE.keys()


class _Curfew(gating.SendGates):
    """As one who adds a gate and forgets the table."""

    def _keep_quiet(self, works: object) -> None:
        for work in works:  # type: ignore[attr-defined]
            work.drop = "curfew: nobody goes out"


def test_a_reason_that_nobody_entered_is_counted_under_its_own_name() -> None:
    bench = Bench(quiet_hours=DROPPING)
    bench.gating.__class__ = _Curfew
    work = bench.work()
    assert bench.judge(work) == ["curfew: nobody goes out"]
    assert bench.gauge("gates_dropped", reason="curfew") == 1
    assert told(work, State.DROPPED) == (Stage.DROPPED, "DROPPED")


def told(work: Work, standing: State) -> tuple[str, str]:
    """The trace's stage, and the outcome under which it counts."""
    kept, metrics = Kept(), Metrics()
    report = WorkerTelemetry(kept, metrics, clock=Clock(), worker="w")
    work.standing, work.reason = standing, work.reason or work.drop or work.hold_reason
    report.ended([work])
    (sample,) = (
        one
        for family in metrics.registry.collect()
        for one in family.samples
        if one.name in ("hongyan_settled_total", "hongyan_duplicates_total") and one.value
    )
    return kept.events[0].stage, sample.labels.get("outcome", "duplicate")


def test_a_hold_that_nobody_entered_is_told_as_held() -> None:
    work = Bench().work()
    work.hold_ms, work.hold_reason = 5, "curfew"
    assert told(work, State.RETRY) == (Stage.HELD, "RETRY")


@pytest.mark.parametrize(
    ("reason", "standing", "stage", "outcome"),
    [
        ("ttl_at_intake", State.EXPIRED, Stage.EXPIRED, "EXPIRED"),
        ("behind", State.RETRY, Stage.BEHIND, "RETRY"),
        ("receiver_limit", State.RETRY, Stage.HELD, "RETRY"),
        ("receiver_limit", State.DROPPED, Stage.DROPPED, "DROPPED"),
        ("quiet_hours", State.RETRY, Stage.HELD, "RETRY"),
        ("recalled", State.DROPPED, Stage.DROPPED, "DROPPED"),
        ("conflict", State.SENT, Stage.CONFLICT, "duplicate"),
        ("duplicate", State.SENT, Stage.DUPLICATE, "duplicate"),
        ("duplicate_prefilter", State.SENT, Stage.DUPLICATE, "duplicate"),
    ],
)
def test_what_ends_at_intake_is_told_by_its_reason(
    reason: str, standing: State, stage: str, outcome: str
) -> None:
    work = Bench().work()
    work.reason = reason
    assert told(work, standing) == (stage, outcome)


def test_the_page_lists_the_table() -> None:
    page = (ROOT / "docs" / "trace.md").read_text("utf-8")
    rows = [
        f"| `{row.code}` | {row.end.value} | {f'`{row.gate}`' if row.gate else ''} | {row.text} |"
        for row in INTAKE
    ]
    assert "\n".join(rows) in page, "\n".join(rows)
