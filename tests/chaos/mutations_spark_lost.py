"""The guards of the job that finds lost deliveries, for `tests/chaos/mutations.py`."""

from __future__ import annotations

from tests.chaos.mutation import Mutation

_CANDIDATES = "tests/idempotency/lost/test_candidates.py::"
_JOB = "tests/spark_jobs/lost/test_job.py::"
_CAUSES = "tests/spark_jobs/lost/test_places_and_causes.py::"
_LITE, _PG = "[sqlite]", "[postgresql]"

SPARK_LOST: tuple[Mutation, ...] = (
    Mutation(
        "the positions are older than everything else that the job reads",
        "hongyan.spark.lost:run_job",
        "        context.run_id,\n        context.positions,\n",
        "        context.run_id,\n        context.positions_now(),\n",
        (_JOB + "test_offsets_committed_after_the_positions_were_read_prove_nothing" + _PG,),
    ),
    Mutation(
        "candidates of an unfinished run are no findings",
        "idempotency.lost.candidates:_ENTER",
        "         WHERE run_id = :run AND (subject, cause) > (:subject, :cause)\n",
        "         WHERE run_id <= :run AND (subject, cause) > (:subject, :cause)\n",
        (_CANDIDATES + "test_candidates_of_a_run_that_did_not_end_count_for_nothing" + _LITE,),
    ),
    Mutation(
        "a decided finding stays decided when a run finds it again",
        "idempotency.lost.candidates:_ENTER",
        "                     ELSE lost_findings.status END",
        "                     ELSE excluded.status END",
        (_CANDIDATES + "test_a_finding_that_comes_back_is_new_and_a_decided_one_stays" + _LITE,),
    ),
    Mutation(
        "a lane without a ledger proves nothing",
        "spark_jobs.lost.causes:proposed",
        "    return found.where(kept & f.col(",
        "    return found.where(f.col(",
        (_CAUSES + "test_a_lane_without_a_ledger_proves_nothing",),
    ),
    Mutation(
        "foreign text of the trace topic goes into no statement",
        "spark_jobs.lost.claimed:KEY",
        '"^[0-9a-f]{32}$"',
        '"^.*$"',
        (_CAUSES + "test_a_key_of_another_form_is_no_delivery",),
    ),
)
