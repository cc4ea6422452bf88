"""The guards of a person's orders, for `tests/chaos/mutations.py`."""

from __future__ import annotations

from tests.chaos.mutation import Mutation

_WATCH = "tests/sending/runtime/test_control.py::"
_DRAIN = "tests/dispatcher/test_drain_order.py::"
_INTAKE = "tests/dispatcher/pipeline/test_intake.py::"
_LANES = "tests/dispatcher/pipeline/test_lanes.py::"
_STAGE = "tests/recovery/retry/test_stage.py::"
_ORDERS = "tests/idempotency/fleet/test_controls.py::"

CONTROL: tuple[Mutation, ...] = (
    Mutation(
        "a paused lane claims nothing",
        "dispatcher.pipeline.intake:Intake.take",
        "            if self._pools[name].paused:\n",
        "            if self._stopping:\n",
        (_INTAKE + "test_a_paused_lane_claims_nothing_and_goes_on_where_it_was",),
    ),
    Mutation(
        "what waits in the queue of a paused lane is not sent",
        "dispatcher.pipeline.lanes:LanePool._too_late",
        "        if self.paused and self.leased:\n",
        "        if self._stopping and self.leased:\n",
        (
            _LANES + "test_what_waits_in_the_queue_of_a_paused_lane_goes_back_without_a_call"
            "[at_once]",
            _LANES + "test_a_mail_under_way_as_its_lane_is_paused_is_taken_back_before_the_dot"
            "[at_once]",
        ),
    ),
    Mutation(
        "without a ledger, too, nothing is sent in a pause",
        "dispatcher.pipeline.lanes:LanePool._held_while_paused",
        "is None and self.paused:\n",
        "is None and self.leased:\n",
        (_LANES + "test_without_a_ledger_a_claimed_delivery_waits_out_the_pause[at_once]",),
    ),
    Mutation(
        "recovery takes nothing of a paused lane",
        "recovery.retry.stage:RetryStage._run",
        "        if callers.paused:\n",
        "        if callers.unsettled < 0:\n",
        (
            _STAGE + "test_a_paused_lane_takes_nothing_again_and_releases_nothing"
            "[at_least_once-sqlite]",
        ),
    ),
    Mutation(
        "recovery sends nothing that it took before the pause",
        "recovery.retry.pool:RetryPool._too_late",
        "        if self.paused:\n",
        "        if self._stopping:\n",
        (
            _STAGE + "test_what_was_taken_before_its_lane_was_paused_goes_back_without_a_call"
            "[at_least_once-sqlite]",
        ),
    ),
    Mutation(
        "a process that starts reads its orders first",
        "dispatcher.worker:Worker._start",
        "        stages.control.look()  # before anything is claimed\n",
        "",
        (_DRAIN + "test_orders_are_read_before_anything_is_claimed",),
    ),
    Mutation(
        "the partitions of a paused lane are closed",
        "dispatcher.worker:Worker.run_once",
        "away | stages.dead_letters.spent | paused",
        "away | stages.dead_letters.spent",
        (_DRAIN + "test_the_partitions_of_a_paused_lane_are_closed",),
    ),
    Mutation(
        "a pause holds while the database is away",
        "sending.runtime.control:ControlWatcher.look",
        "            self._note_away(exc)\n",
        "            self._note_away(exc)\n            self._ends = {}\n",
        (_WATCH + "test_a_database_that_is_away_leaves_the_orders_as_they_are",),
    ),
    Mutation(
        "a pause past its planned end is over",
        "idempotency.fleet.controls:_IN_FORCE",
        " AND (until IS NULL OR until > {now})",
        " AND (until IS NULL OR until >= {now})",
        (_ORDERS + "test_a_pause_ends_by_itself_by_the_databases_clock[sqlite]",),
    ),
    Mutation(
        "an order to drain is for one life",
        "idempotency.fleet.controls:_ORDERS",
        "worker_id = {{value}} AND asked_at >= {{value}}",
        "worker_id = {{value}} AND asked_at >= 0 * {{value}}",
        (_ORDERS + "test_a_drain_is_for_the_life_that_it_was_ordered_for[sqlite]",),
    ),
)
