"""The guards of what a provider's query proves, for `tests/chaos/mutations.py`."""

from __future__ import annotations

from tests.chaos.mutation import Mutation

_LISTING = "tests/channels/judging/test_listing.py::"
_ALIYUN = "tests/channels/providers/test_aliyun_sms.py::"
_TENCENT = "tests/channels/providers/test_tencent_sms.py::"
_TWILIO = "tests/channels/providers/test_twilio.py::"
_WEBHOOK = "tests/channels/providers/webhook/test_adapter.py::"
_WECOM = "tests/channels/providers/test_wecom.py::"
_DINGTALK = "tests/channels/providers/test_dingtalk.py::"
_FEISHU = "tests/channels/providers/test_feishu.py::"
_ROWS = "tests/idempotency/recovery/test_contract.py::"
_RESOLVING = "tests/recovery/unknown/test_resolver.py::"
_CONCLUSIONS = "tests/recovery/unknown/test_decisions.py::"
_TASKS = "tests/channels/test_task_results.py::"
_LOGINS = "tests/dispatcher/test_refused_login.py::"
_LITE = "[sqlite]"

RESOLVERS: tuple[Mutation, ...] = (
    Mutation(
        "a provider's lag counts from the last call",
        "channels.judging.listing:not_sent",
        "    if attempt.now - attempt.last_call >= lag_s * _MS:\n",
        "    if attempt.now - attempt.called_at >= lag_s * _MS:\n",
        (_ALIYUN + "test_the_lag_counts_from_the_last_call",),
    ),
    Mutation(
        "a list shows as many rows as it counts",
        "channels.judging.listing:Pages.end",
        "        if self._total is not None and self._total != self._rows:\n",
        "        if False:\n",
        (_ALIYUN + "test_a_list_that_is_not_whole_or_may_hold_ours_is_asked_again",),
    ),
    Mutation(
        "a list that moved while it was read proves nothing",
        "channels.judging.listing:Pages.page",
        "        if not self._seen.isdisjoint(found):\n",
        "        if False:\n",
        (_TWILIO + "test_a_list_that_moves_while_it_is_read_proves_nothing",),
    ),
    Mutation(
        "every list that was begun is read to its end",
        "channels.judging.listing:Listing.verdict",
        "        if self._open or not self._read:\n",
        "        if False:\n",
        (_LISTING + "test_a_list_that_was_not_read_to_its_end_proves_nothing",),
    ),
    Mutation(
        "a clock that is minutes away proves nothing",
        "channels.judging.listing:Listing._is_off",
        "        return abs(dated - self._attempt.now) > _CLOCK_MS\n",
        "        return False\n",
        (_LISTING + "test_a_clock_that_is_minutes_away_says_nothing",),
    ),
    Mutation(
        "a report without SessionContext may be this call's",
        "channels.providers.tencent_sms.adapter:_read_reports",
        '        elif one.SessionContext in ("", None, key):\n',
        "        elif one.SessionContext == key:\n",
        (_TENCENT + "test_a_report_that_may_be_ours_is_neither_sent_nor_not_sent",),
    ),
    Mutation(
        "numbers that are redacted make an empty list worthless",
        "channels.providers.twilio.adapter:Twilio.resolve",
        "            yield from wire.unmasked(prepared, listing)\n",
        "            pass\n",
        (_TWILIO + "test_where_numbers_are_redacted_an_empty_list_proves_nothing",),
    ),
    Mutation(
        "a status query's answer holds its state",
        "channels.providers.webhook.adapter:_resolved",
        "    if (answer.status_code, state) not in _STATES:\n",
        "    if answer.status_code not in (200, 404):\n",
        (_WEBHOOK + "test_a_router_and_a_catch_all_tell_nothing",),
    ),
    Mutation(
        "WeCom's check is the account's to switch on",
        "channels.providers.wecom.app:_body",
        "    if options.duplicate_check:\n",
        "    if True:\n",
        (_WECOM + "test_without_the_check_nothing_is_dropped_and_nothing_relied_on",),
    ),
    Mutation(
        "WeCom's refusal over one member parks no other member",
        "channels.providers.wecom.app:WecomChannel.outcomes",
        "_AGAIN_MS, joint=True)",
        "_AGAIN_MS)",
        (_WECOM + "test_a_call_refused_for_one_of_several_rejects_none_of_them",),
    ),
    Mutation(
        "DingTalk's refusal over one member parks no other member",
        "channels.providers.dingtalk.app:_of_many",
        "_ALONE_MS, joint=True)",
        "_ALONE_MS)",
        (_DINGTALK + "test_a_refusal_for_one_of_several_comes_back_each_alone",),
    ),
    Mutation(
        "Feishu's 400 proves nothing",
        "channels.providers.feishu.wire:refused",
        "        status = 0 if answer.status_code == _PROVES_NOTHING else answer.status_code\n",
        "        status = answer.status_code\n",
        (_FEISHU + "test_a_code_of_no_table_under_400_is_settled_by_the_uuid",),
    ),
    Mutation(
        "a recall that met a busy provider is asked for again",
        "channels.judging.recall_outcomes:taken_back",
        'row.kind in ("not_sent", "unknown")',
        'row.kind == "not_sent"',
        ("tests/channels/judging/test_recall_outcomes.py::test_what_an_answer_means",),
    ),
    Mutation(
        "patience counts from the last call",
        "recovery.unknown.decisions:_patience_ends",
        "    return doubt.last_call + (doubt.delivery.expires_at - doubt.last_call) * _PATIENCE\n",
        "    return doubt.called_at + (doubt.delivery.expires_at - doubt.called_at) * _PATIENCE\n",
        (_CONCLUSIONS + "test_patience_and_pauses_count_from_the_last_call",),
    ),
    Mutation(
        "every account that was called is asked",
        "recovery.unknown.resolver:Resolving._facts",
        "        for name in doubt.earlier_accounts:\n",
        "        for name in ():\n",
        (
            _RESOLVING
            + "test_every_account_that_was_called_is_asked_about_the_first_call_and_the_last",
        ),
    ),
    Mutation(
        "the last call is on record before it is made",
        "idempotency.recovery.statements:_TAKE",
        "       last_called_at = :now,\n",
        "",
        (_ROWS + "test_a_doubt_tells_of_its_first_call_and_of_its_last" + _LITE,),
    ),
    Mutation(
        "a task's result says nothing of an earlier call in doubt",
        "channels.providers.dingtalk.notice:_not_sent",
        "    if again.doubted and delay_ms + _MARGIN_MS >= again.tomorrow_ms:\n",
        "    if False:\n",
        (_TASKS + "test_no_result_makes_a_resolver_say_what_is_not_so",),
    ),
    Mutation(
        "a task's result under a bad status says nothing",
        "channels.providers.dingtalk.notice:resolved",
        "    if not answer.is_success:\n",
        "    if False:\n",
        (_TASKS + "test_no_result_makes_a_resolver_say_what_is_not_so",),
    ),
    Mutation(
        "who has read a notice has it",
        "channels.providers.dingtalk.notice:resolved",
        "    if userid in (found.read_user_id_list or ()):\n",
        "    if False:\n",
        (_TASKS + "test_no_result_makes_a_resolver_say_what_is_not_so",),
    ),
    Mutation(
        "nobody waits for a word that never comes",
        "recovery.unknown.decisions:_of_task",
        "    if left_ms > 0 and not final:\n",
        "    if left_ms > 0:\n",
        (_CONCLUSIONS + "test_a_task_of_which_the_provider_never_will_say_more_is_parked_at_once",),
    ),
    Mutation(
        "a login that is refused in an answer is the fleet's to leave alone",
        "sending.accounts.selector:AccountSelector._heed",
        "            if isinstance(one, NotSent) and one.limit is Limit.LOGIN:\n",
        "            if False:\n",
        (
            _LOGINS + "test_six_workers_ask_about_once_a_minute_and_the_other_login_goes_on",
            _LOGINS + "test_it_is_told_until_it_is_mended_and_a_while_longer",
        ),
    ),
    Mutation(
        "of a fleet one process tries a refused login first",
        "sending.accounts.paces:AccountPaces.__init__",
        "        self._late_ms = LATE_MS * luck()\n",
        "        self._late_ms = 0.0\n",
        (_LOGINS + "test_six_workers_ask_about_once_a_minute_and_the_other_login_goes_on",),
    ),
)
