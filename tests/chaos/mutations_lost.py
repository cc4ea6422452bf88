"""The guards between a finding and its send, for `tests/chaos/mutations.py`."""

from __future__ import annotations

from tests.chaos.mutation import Mutation

_JOB = "tests/recovery/lost/test_job.py::"
_RECOVERY = "tests/recovery/lost/test_recovery.py::"
_RECALLED = _JOB + "test_a_recalled_one_enters_as_dropped"
_PAST = _JOB + "test_past_its_time_it_is_entered_as_expired_and_a_person_may_retry_it"
_YESTERDAY = _JOB + "test_a_row_of_yesterday_is_no_second_row_today"
_CAUSES = _JOB + "test_an_uncertain_cause_is_never_sent_by_itself"
_LITE, _PG = "[sqlite]", "[postgresql]"

LOST: tuple[Mutation, ...] = (
    Mutation(
        "PostgreSQL: the unique key decides about a found one, too",
        "idempotency.claims.postgres:_IS_WON",
        "(key IN (SELECT delivery_key FROM won)) IS TRUE",
        "(key IN (SELECT delivery_key FROM won)) IS TRUE OR why = 'lost'",
        (_YESTERDAY + _PG,),
    ),
    Mutation(
        "nothing is entered to be sent past its TTL",
        "recovery.lost.entry:claim_of",
        "Event.TTL_AT_INTAKE if delivery.expires_at <= now else Event.FOUND",
        "Event.FOUND",
        (_PAST + _LITE, _PAST + _PG),
    ),
    Mutation(
        "PostgreSQL: a recalled one is not entered to be sent",
        "idempotency.claims.postgres:_CLAIM",
        "wanted IN ('IN_FLIGHT', 'RETRY', 'PARKED')",
        "wanted IN ('IN_FLIGHT', 'PARKED')",
        (f"{_RECALLED}[postgresql-by_id]",),
    ),
    Mutation(
        "a recalled one is not entered to be sent",
        "idempotency.claims.sqlite:_is_recalled",
        "(State.IN_FLIGHT, State.RETRY, State.PARKED)",
        "(State.IN_FLIGHT, State.PARKED)",
        (f"{_RECALLED}[sqlite-by_id]",),
    ),
    Mutation(
        "a cause that proves little is left to a person",
        "recovery.lost.rules:decided",
        "    if finding.cause not in SURE or not finding.certain:\n",
        "    if False:\n",
        (f"{_CAUSES}[sqlite-unread]",),
    ),
    Mutation(
        "a dead letter is no loss",
        "recovery.lost.job:LostDeliveries._dead",
        "        return [f for f in page if f.origin in dead]\n",
        "        return []\n",
        (_JOB + "test_a_dead_letter_is_no_loss_and_its_replay_is_sent_once" + _LITE,),
    ),
    Mutation(
        "an archived one is no loss",
        "recovery.lost.evidence:archive_place",
        '    return rows[0].where if rows else ""\n',
        '    return ""\n',
        (_JOB + "test_an_archived_one_is_no_loss" + _LITE,),
    ),
    Mutation(
        "the record at its place must be the finding's",
        "recovery.lost.entry:delivery_of",
        "next((one for one in made if one.key == finding.subject), None)",
        "next(iter(made), None)",
        (_JOB + "test_without_its_body_a_person_decides[sqlite-other]",),
    ),
    Mutation(
        "a dismissed one is not entered",
        "recovery.lost.job:LostDeliveries._enter",
        "                if f.id in open_ids and keeps_order(f.lane, policy) is ordered\n",
        "                if keeps_order(f.lane, policy) is ordered\n",
        (_JOB + "test_a_dismissed_one_is_not_entered" + _LITE,),
    ),
    Mutation(
        "an entry whose note is missing is recovery's own",
        "recovery.lost.job:LostDeliveries._contradicted",
        "begun=f.is_begun or row.reason == LOST",
        "begun=False",
        (
            _RECOVERY
            + "test_a_process_killed_between_claim_and_note_is_followed_by_one_send"
            + _LITE,
        ),
    ),
)
