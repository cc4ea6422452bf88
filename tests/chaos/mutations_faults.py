"""The guards of faults that a person can mend, for `tests/chaos/mutations.py`."""

from __future__ import annotations

from tests.chaos.mutation import Mutation

_FAULTS = "tests/recovery/test_parked_faults.py::"
_PARKED = _FAULTS + "test_it_is_parked_with_its_payload_and_goes_once_it_is_mended"
_FORMS = "tests/dispatcher/test_template_forms.py::"
_RECALLS = "tests/idempotency/test_recalls.py::"
_RESENDING = "tests/recovery/retry/test_stage.py::"
_RULES = "tests/sending/alerts/test_rules.py::"
_LITE = "[at_least_once-sqlite]"
_HELD_AND_PARKED = (
    "test_held_and_parked_ones_are_dropped_too_and_what_a_gate_dropped_keeps_its_reason"
)

FAULTS: tuple[Mutation, ...] = (
    Mutation(
        "a fault that a person can mend parks a delivery",
        "message.reasons:is_final",
        "    return row is not None and not row.mender\n",
        "    return True\n",
        (
            _FAULTS
            + "test_a_reason_parks_a_delivery_only_where_somebody_can_mend_it[variable_type]",
            _PARKED + "[sqlite-variable_type]",
        ),
    ),
    Mutation(
        "what shall be parked is not claimed to be sent",
        "dispatcher.pipeline.claims:_claim_of",
        "    if type(intent) is Park:\n",
        "    if type(intent) is Work:\n",
        (_PARKED + "[sqlite-no_template]",),
    ),
    Mutation(
        "a lane without a ledger sends nothing that has a fault",
        "dispatcher.pipeline.claims:BestEffortClaims.admit",
        "isinstance(work.intent, Drop | Park | Hold):",
        "isinstance(work.intent, Drop | Hold):",
        (
            _FAULTS
            + "test_a_lane_without_a_ledger_drops_it_with_an_alert_and_says_that_nothing_keeps_it"
            "[variable_type]",
        ),
    ),
    Mutation(
        "an adapter's refusal that a person can mend parks a delivery",
        "dispatcher.pipeline.batching:_sharing",
        "Park(refusal) if mender_of(refusal) else Refuse(refusal)",
        "Refuse(refusal)",
        (_FORMS + "test_where_no_account_has_a_form_its_adapter_says_so",),
    ),
    Mutation(
        "a parked delivery calls a person",
        "dispatcher.pipeline.telemetry:WorkerTelemetry._report_faults",
        "        self._raise(alerts)\n",
        "",
        (
            _FAULTS
            + "test_an_alert_names_lane_template_and_reason_and_the_log_has_one_line_a_batch"
            "[variable_missing]",
        ),
    ),
    Mutation(
        "names that are in no file are one alert",
        "sending.alerts.rules:_about",
        "if template and code in _OF_OUR_TEMPLATES else code",
        "if template else code",
        (_RULES + "test_names_that_are_in_no_file_are_one_alert_however_many_there_are",),
    ),
    Mutation(
        "a recalled delivery that would be parked enters as dropped",
        "idempotency.claims.sqlite:_is_recalled",
        "(State.IN_FLIGHT, State.RETRY, State.PARKED)",
        "(State.IN_FLIGHT, State.RETRY)",
        (_RECALLS + f"{_HELD_AND_PARKED}[sqlite]",),
    ),
    Mutation(
        "PostgreSQL: a recalled delivery that would be parked enters as dropped",
        "idempotency.claims.postgres:_CLAIM",
        "AND wanted IN ('IN_FLIGHT', 'RETRY', 'PARKED')\n",
        "AND wanted IN ('IN_FLIGHT', 'RETRY')\n",
        (_RECALLS + f"{_HELD_AND_PARKED}[postgresql]",),
    ),
    Mutation(
        "a template over which rendering fails ends no process",
        "sending.template_renderer:rendered",
        "    except Exception as exc:\n",
        "    except AssertionError as exc:\n",
        (_FAULTS + "test_a_template_that_fails_unforeseen_parks_and_ends_nothing",),
    ),
    Mutation(
        "a template that still fails parks its delivery again",
        "recovery.retry.stage:RetryStage._resend",
        "        if fault := self._render(delivery):\n",
        "        if (fault := self._render(delivery)) and not fault:\n",
        (_RESENDING + f"test_a_template_that_still_fails_parks_it_again_with_its_reason{_LITE}",),
    ),
    Mutation(
        "a delivery that is parked before its call keeps its attempt",
        "idempotency.claims.rows:_UNSTARTED",
        ", Event.PARK,",
        ",",
        (_RESENDING + f"test_a_template_that_still_fails_parks_it_again_with_its_reason{_LITE}",),
    ),
    Mutation(
        "a delivery that its adapter refuses keeps its attempt",
        "idempotency.claims.rows:_UNSTARTED",
        ", Event.REFUSED})",
        "})",
        (
            _RESENDING
            + f"test_what_its_provider_could_never_take_is_rejected_without_a_call{_LITE}",
        ),
    ),
    Mutation(
        "a template that fails takes no doubt away",
        "recovery.retry.stage:RetryStage._resend",
        "        unfit = Event.PARK if taken.doubted_since is None else Event.UNKNOWN\n",
        "        unfit = Event.PARK\n",
        (
            _RESENDING + f"test_a_template_that_fails_takes_no_doubt_away{_LITE}",
            _RESENDING + f"test_an_account_that_is_gone_takes_no_doubt_away{_LITE}",
        ),
    ),
    Mutation(
        "recovery parks what an adapter refuses for a fault that can be mended",
        "recovery.retry.stage:_unfit",
        "    if mender_of(code):\n",
        "    if code is None:\n",
        (_RESENDING + f"test_an_adapter_whose_refusal_a_person_can_mend_parks_it{_LITE}",),
    ),
)
