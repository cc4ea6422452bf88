"""Once per receiver, while templates change between two openings of a run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idempotency.ledger import LedgerUnavailable
from policy.templates.loading import load
from producer.campaigns import run_store
from producer.campaigns.contract import CampaignRun, CampaignState
from producer.campaigns.line_numbers import packed_lines, unpacked_lines
from producer.campaigns.row_checks import row_checks
from producer.campaigns.run_store import RunProgress
from tests.harness.waiting import await_
from tests.producer.campaigns.crowds import TEMPLATES, CampaignDesk
from tests.producer.campaigns.crowds import crowd as few

NUMBERS_ONLY = TEMPLATES
ANY_TEXT = TEMPLATES.replace('{type = "int", default = 5}', '{type = "string", default = "5"}')
TWICE = "+8613800000002"
LATER = "+8613800000003"


def use(desk: CampaignDesk, tmp_path: Path, templates: str) -> None:
    file = tmp_path / "mended.toml"
    file.write_text(templates)
    desk.checks = row_checks(desk.settings, load(file))


def crowd(tmp_path: Path, *first: str, last: str) -> Path:
    """A file with some rows, 400 rows of other receivers, and a last row."""
    others = [f"+86139{n:08d},n,1" for n in range(400)]
    file = tmp_path / "crowd.csv"
    file.write_text("\n".join(["receiver,name,amount", *first, *others, last]) + "\n")
    return file


def send_in_two_parts(
    desk: CampaignDesk, tmp_path: Path, file: Path, *templates: str
) -> CampaignRun:
    """Sends a run with the first templates, and after a stop in its middle with the second ones."""
    before, after = templates
    use(desk, tmp_path, before)
    one = desk.started(file, once_per_receiver=True, rate_per_s=300.0, error_rate=1.0)
    with desk.running():
        await_(lambda: desk.runs.of(one.id) and desk.run_of(one.id).sent > 0)
    assert 0 < desk.run_of(one.id).sent < 400
    use(desk, tmp_path, after)
    with desk.running():
        desk.until(one.id, CampaignState.DONE)
    return desk.run_of(one.id)


def times(desk: CampaignDesk) -> Counter[str]:
    return Counter(one.receivers[0] for one in desk.sent())


def test_a_row_that_was_bad_before_the_template_was_mended_is_no_earlier_row(
    desk: CampaignDesk, tmp_path: Path
) -> None:
    file = crowd(tmp_path, f"{TWICE},n,five", last=f"{TWICE},n,3")
    run = send_in_two_parts(desk, tmp_path, file, NUMBERS_ONLY, ANY_TEXT)
    assert times(desk)[TWICE] == 1
    assert (run.sent, run.bad, run.repeated) == (401, 1, 0)


def test_a_row_that_was_sent_stays_an_earlier_row_if_the_template_refuses_it_now(
    desk: CampaignDesk, tmp_path: Path
) -> None:
    file = crowd(tmp_path, f"{TWICE},n,five", last=f"{TWICE},n,3")
    run = send_in_two_parts(desk, tmp_path, file, ANY_TEXT, NUMBERS_ONLY)
    assert times(desk)[TWICE] == 1
    assert (run.sent, run.bad, run.repeated) == (401, 0, 1)


def test_bad_rows_beyond_the_kept_ones_are_remembered_by_line(
    desk: CampaignDesk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_store, "KEPT_BAD_ROWS", 1)
    first = [f"{LATER},n,1", ",n,1", ",n,1", f"{TWICE},n,five", ",n,1", f"{LATER},n,1"]
    file = crowd(tmp_path, *first, last=f"{TWICE},n,3")
    run = send_in_two_parts(desk, tmp_path, file, NUMBERS_ONLY, ANY_TEXT)
    assert (times(desk)[TWICE], times(desk)[LATER]) == (1, 1)
    assert (run.sent, run.bad, run.repeated) == (402, 4, 1)
    assert [(one.line, one.code) for one in desk.runs.every_bad_row(run.id)] == [(3, "no_receiver")]
    assert list(desk.runs.unsent_lines(run.id)) == [3, 4, 5, 6, 7]


@pytest.mark.parametrize("templates", [(NUMBERS_ONLY, ANY_TEXT), (ANY_TEXT, NUMBERS_ONLY)])
def test_rows_that_the_topic_holds_after_the_checkpoint_stay_as_they_were_judged(
    desk: CampaignDesk,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    templates: tuple[str, str],
) -> None:
    """A process was killed before its first checkpoint, and its rows are in the topic."""
    with desk.running():  # a run without positions would read no topic
        desk.until(desk.started(few(tmp_path, 1, "first.csv")).id, CampaignState.DONE)
    use(desk, tmp_path, templates[0])
    file = tmp_path / "crowd.csv"
    file.write_text(
        f"receiver,name,amount\n{TWICE},n,five\n{TWICE},n,3\n{LATER},n,1\n{TWICE},n,4\n"
    )
    one = desk.started(file, once_per_receiver=True, error_rate=1.0)
    write, written = desk.runs.write, list[RunProgress]()

    def only_the_openings(run: CampaignRun, progress: RunProgress) -> Any:
        written.append(progress)
        if len(written) > 1:
            raise LedgerUnavailable("killed before it could write")
        return write(run, progress)

    monkeypatch.setattr(desk.runs, "write", only_the_openings)
    with desk.running():
        await_(lambda: len(desk.sent()) == 3, what="both receivers have a row")
    assert desk.run_of(one.id).done == 0
    monkeypatch.setattr(desk.runs, "write", write)
    use(desk, tmp_path, templates[1])
    with desk.running():
        desk.until(one.id, CampaignState.DONE)
    assert (times(desk)[TWICE], times(desk)[LATER]) == (1, 1)
    assert desk.run_of(one.id).sent == 2


@given(st.lists(st.integers(1, 10**9), unique=True).map(sorted))
def test_packed_lines_are_the_same_lines(lines: list[int]) -> None:
    assert list(unpacked_lines(packed_lines(lines))) == lines


def test_neighbouring_lines_take_little_room() -> None:
    assert packed_lines(range(7, 2_007)) == "7 1*1999"
