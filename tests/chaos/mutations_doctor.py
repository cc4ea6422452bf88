"""The guards of doctor, for `tests/chaos/mutations.py`."""

from __future__ import annotations

from tests.chaos.mutation import Mutation

_RULES = "tests/producer/doctor/test_rules.py::"
_SEED = _RULES + "test_each_misconfiguration_is_found_with_the_loss_it_would_cause"
_UNKNOWN = "tests/producer/doctor/test_unknown.py::"
_PAGE = "tests/admin/test_doctor_page.py::"
_DEMANDS = "tests/backends/kafka/test_topic_demands.py::"

DOCTOR: tuple[Mutation, ...] = (
    Mutation(
        "a rule without its source is not known",
        "producer.doctor.diagnosis:_applied",
        "    if lacking:\n",
        "    if not rule:\n",
        (
            _UNKNOWN + "test_without_the_cluster_no_rule_that_needs_it_passes",
            _UNKNOWN + "test_without_the_database_no_rule_about_it_passes",
        ),
    ),
    Mutation(
        "a rule with a gap does not pass",
        "producer.doctor.diagnosis:diagnose",
        "        if not seen and not gaps:\n",
        "        if not seen:\n",
        (_UNKNOWN + "test_a_topic_whose_settings_may_not_be_read_passes_no_rule_about_them",),
    ),
    Mutation(
        "what is not known and could be an error is no health",
        "producer.doctor.diagnosis:Diagnosis.healthy",
        "and not gaps",
        "",
        (_UNKNOWN + "test_without_the_database_no_rule_about_it_passes",),
    ),
    Mutation(
        "a topic that may not be read is not known",
        "producer.doctor.rules.topic_rules:_known",
        "        if state.refusal:\n",
        "        if not state.name:\n",
        (_UNKNOWN + "test_a_topic_whose_settings_may_not_be_read_passes_no_rule_about_them",),
    ),
    Mutation(
        "one broker excuses only what it cannot do",
        "producer.doctor.diagnosis:_severity",
        "if rule.needs_brokers and facts.one_broker",
        "if facts.one_broker",
        (_RULES + "test_one_broker_is_no_excuse_for_what_it_could_do",),
    ),
    Mutation(
        "no command demands more copies in sync than there are",
        "producer.doctor.rules.topic_rules:min_isr",
        "copies[answer.subject] < _COPIES",
        "copies[answer.subject] < 0",
        (_RULES + "test_with_too_few_copies_no_command_demands_more_of_them_in_sync",),
    ),
    Mutation(
        "a topic's clean-up policy is compared",
        "backends.kafka.topic_demands:EXACTLY",
        '"cleanup.policy", ',
        "",
        (
            f"{_SEED}[topic-cleanup-policy]",
            _DEMANDS + "test_each_key_is_compared_and_its_remedy_sets_it[cleanup.policy-compact]",
        ),
    ),
    Mutation(
        "a topic's retention is compared",
        "backends.kafka.topic_demands:AT_LEAST",
        '"retention.ms", ',
        "",
        (f"{_SEED}[topic-retention]",),
    ),
    Mutation(
        "a partition that takes most records is hot",
        "producer.doctor.rules.topic_rules:hot",
        "share < max(",
        "share <= 1 or share < max(",
        (f"{_SEED}[partition-hot]", _RULES + "test_the_hot_key_is_named"),
    ),
    Mutation(
        "a run without the cluster forgets no partitions",
        "producer.doctor.runs:DoctorRuns.add",
        "if before is not None and not diagnosis.partitions:",
        "if before is None and diagnosis.partitions:",
        (_PAGE + "test_the_newest_results_are_kept_and_a_blind_run_forgets_no_partitions[sqlite]",),
    ),
    Mutation(
        "one run of doctor at a time in a console",
        "admin.pages.doctor:run_doctor",
        "if not _running.acquire(blocking=False):",
        "if _running.acquire(blocking=False) is None:",
        (_PAGE + "test_a_second_run_at_the_same_time_is_refused[sqlite]",),
    ),
)
