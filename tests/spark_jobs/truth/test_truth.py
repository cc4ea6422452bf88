"""The truth test: what is lost is found by its cause, and nothing else; what could be resent arrives once.

`make truth MESSAGES=200000 SEED=7` runs a small one first, then the whole (docs/chaos.md).
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from deploy.local.layout import REPOSITORY
from deploy.local.stack import Stack
from tests.spark_jobs.truth.extent import Extent
from tests.spark_jobs.truth.oracle import judge
from tests.spark_jobs.truth.scene import Scene, scene_on
from tests.spark_jobs.truth.second_run import fingerprint_of_two_runs

REPORTS = REPOSITORY / ".chaos"
SMALL = Extent(messages=3_000, seed=7, every="3s", kills=2, driver_kills=0)
WHOLE = 200_000
IN_TIME_S = 120.0
"""From moved offsets to the provider's ledger, at `--every 30s`; a bar of the whole run alone."""


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_what_is_lost_is_found_by_its_cause_and_arrives_once(stack: Stack, tmp_path: Path) -> None:
    with scene_on(stack, tmp_path / "truth", SMALL) as scene:
        _run(scene)


@pytest.mark.chaos
def test_the_whole_truth(stack: Stack) -> None:
    seed = int(os.environ.get("SEED") or random.randrange(1_000_000))
    messages = int(os.environ.get("MESSAGES") or WHOLE)
    kills = int(os.environ.get("KILLS") or 10)
    folder = REPORTS / f"truth-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    extent = Extent(messages=messages, seed=seed, every="30s", kills=6, driver_kills=kills)
    with scene_on(stack, folder, extent) as scene:
        took_s = _run(scene)
        print(f"seed {seed}: {len(scene.fleet.sent):,} records; passed → provider {took_s:.0f} s")
        undisturbed, killed = fingerprint_of_two_runs(scene)
    assert killed == undisturbed
    assert took_s <= IN_TIME_S  # last, since a busy machine misses it


def _run(scene: Scene) -> float:
    """Returns the longest time from moved offsets to the provider's ledger, in seconds."""
    scene.fleet.recovery().wait_ready()
    scene.delete_early()
    scene.run_traffic()
    scene.keep_out()
    before = scene.arrivals()
    assert set(before.values()) == {1}, "the provider took something twice before anything was lost"
    with scene.program.start("spark", "spark", "run", "--every", scene.extent.every) as loop:
        scene.await_run("lost", loop.check)
        passed_at = scene.pass_by()
        scene.await_resent("passed", loop.check)
        scene.send_to_be_removed()
        scene.await_run("ingest", loop.check)
        scene.remove()
        scene.forget()
        scene.leave_unread()
        scene.await_run("lost", loop.check)
        scene.await_resent("removed", loop.check)
        loop.stop()
    _check_findings(scene)
    _check_gaps(scene)
    took_s = _longest_s(scene, passed_at)
    sent_before = len(scene.fleet.sent)
    scene.come_back()
    _check_arrivals(scene, before, sent_before)
    return took_s


def _check_findings(scene: Scene) -> None:
    """Precision and recall of every cause are 100 %."""
    expected, extent = scene.expected, scene.extent
    assert len(expected.holes) >= extent.deleted_early // 2 * 2
    for cause, least in (
        ("passed", extent.passed),
        ("removed", extent.deleted_unread),
        ("unread", extent.unread),
        ("forgotten", extent.forgotten),
    ):
        assert len(expected.keys[cause]) >= least - 2, f"the scene lost too little by {cause}"
    assert judge(expected, scene.findings(), scene.places()) == []


def _check_gaps(scene: Scene) -> None:
    """The jobs tell exactly as many missing events as were taken out."""
    known, taken = scene.missing_known()
    assert known == taken, "the leak lost events that it did not write down"
    assert taken > scene.extent.untraced, "the leak took too little"
    assert scene.missing_told() == known


def _longest_s(scene: Scene, passed_at: int) -> float:
    arrived, receivers = scene.first_arrivals(), scene.receivers()
    times = [arrived[receivers[key]] - passed_at for key in scene.expected.keys["passed"]]
    return max(times) / 1_000


def _check_arrivals(scene: Scene, before: Counter[str], sent_before: int) -> None:
    """Checks that each resendable delivery arrived once more, and nothing else again."""
    receivers = scene.receivers()
    lost = {*scene.expected.keys["passed"], *scene.expected.keys["removed"]}
    wanted = before + Counter(receivers[key] for key in lost)
    wanted += Counter(
        receiver
        for one in scene.fleet.sent[sent_before:]
        if one.notification
        for receiver in one.notification.receivers
    )
    found = scene.arrivals()
    wrong = {name for name in wanted.keys() | found.keys() if wanted[name] != found[name]}
    assert not wrong, f"{len(wrong)} receivers got too much or too little: {sorted(wrong)[:5]}"
