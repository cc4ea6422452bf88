"""The guards of the HTTP/2 transport and of APNs, for `tests/chaos/mutations.py`."""

from __future__ import annotations

from tests.chaos.mutation import Mutation

_WIRE = "tests/conformance/test_http2.py::"
_ROW = _WIRE + "test_outcome_agrees_with_what_the_provider_processed"
_BYTES = "tests/channels/http2_client/test_connection.py::"
_APNS = "tests/channels/providers/test_apns.py::"

HTTP2: tuple[Mutation, ...] = (
    Mutation(
        "a stream above GOAWAY's last was not processed",
        "channels.http2_client.connection:Http2Connection._told_to_go",
        "        for stream in [one for one in self._streams.values() if one.id > goaway.last_stream]:\n",
        "        for stream in []:\n",
        (
            _ROW + "[waited-goaway_before_on_a_fresh_connection]",
            _WIRE + "test_calls_that_a_goaway_meets_are_told_apart_by_its_last_stream",
        ),
    ),
    Mutation(
        "a stream up to GOAWAY's last may have been processed",
        "channels.http2_client.connection:Http2Connection._told_to_go",
        "if one.id > goaway.last_stream]:\n",
        "if one.id >= goaway.last_stream]:\n",
        (
            _ROW + "[waited-goaway_with_this_stream_then_close]",
            _ROW + "[waited-tls-goaway_with_this_stream_then_its_answer]",
        ),
    ),
    Mutation(
        "after GOAWAY no call begins on the connection",
        "channels.http2_client.connection:Http2Connection._retire",
        "        self._retired = True\n        self._why = Failure(Phase.NOT_WRITTEN, code, why)\n",
        "        self._why = Failure(Phase.NOT_WRITTEN, code, why)\n",
        (_ROW + "[waited-goaway_as_a_notice_then_the_answer]",),
    ),
    Mutation(
        "GOAWAY does not reach the state machine, which would end every stream",
        "channels.http2_client.frames:Frames.split",
        "            if data[end + 3] == _GOAWAY and size >= _LEAST_GOAWAY:\n",
        "            if False:\n",
        (_ROW + "[waited-goaway_with_this_stream_then_its_answer]",),
    ),
    Mutation(
        "only REFUSED_STREAM says that nothing was done",
        "channels.http2_client.connection:Http2Connection._after_reset",
        "        if event.remote_reset and event.error_code == ErrorCodes.REFUSED_STREAM:\n",
        "        if event.remote_reset:\n",
        (
            _ROW + "[waited-reset_with_cancel]",
            _ROW + "[waited-reset_with_internal_error]",
            _ROW + "[waited-reset_with_no_error]",
        ),
    ),
    Mutation(
        "REFUSED_STREAM says that nothing was done",
        "channels.http2_client.connection:Http2Connection._after_reset",
        "        if event.remote_reset and event.error_code == ErrorCodes.REFUSED_STREAM:\n",
        "        if False:\n",
        (_ROW + "[waited-refused_on_a_reused_connection]",),
    ),
    Mutation(
        "who began to answer is not believed to have done nothing",
        "channels.http2_client.stream:Stream.unprocessed",
        "        phase = Phase.WRITTEN if self.answered else Phase.NOT_WRITTEN\n",
        "        phase = Phase.NOT_WRITTEN\n",
        (
            _ROW + "[waited-refused_after_it_began_to_answer]",
            _ROW + "[waited-refused_after_an_interim_answer]",
            _ROW + "[waited-goaway_before_after_it_began_to_answer]",
        ),
    ),
    Mutation(
        "a request is whole once END_STREAM is written",
        "channels.http2_client.stream:Stream.complete",
        "        return self.ends_at != _NEVER and self.ends_at <= written\n",
        "        return self.ends_at != _NEVER\n",
        (
            _BYTES
            + "test_at_every_byte_a_call_is_told_as_not_written_until_the_peer_can_read_all_of_it",
            _BYTES + "test_the_calls_beside_one_that_the_socket_does_not_take_are_told_apart",
        ),
    ),
    Mutation(
        "what is told as not written is not in a buffer that still leaves",
        "channels.http2_client.connection:Http2Connection._expire",
        '            self._lose("timeout", "the provider reads nothing")\n',
        "            self._cancel(stream)\n",
        (
            _BYTES + "test_what_is_told_as_not_written_does_not_leave_when_the_socket_takes_more",
            _BYTES
            + "test_at_every_byte_a_call_is_told_as_not_written_until_the_peer_can_read_all_of_it",
        ),
    ),
    Mutation(
        "over TLS a byte counts once the socket has its whole record",
        "channels.tls.tls_socket:TlsWire.offer",
        "            return 0\n        taken, self._offered = self._offered, 0\n",
        "            pass\n        taken, self._offered = self._offered, 0\n",
        (_BYTES + "test_over_tls_a_byte_counts_once_the_socket_has_the_whole_of_its_record",),
    ),
    Mutation(
        "a request that is whole may have been acted on",
        "channels.http2_client.stream:Stream.failed",
        "        if self.answered or self.complete(written):\n",
        "        if self.answered:\n",
        (
            _ROW + "[waited-accept_then_close_on_a_fresh_connection]",
            _ROW + "[unwaited-tls-answer_after_the_deadline]",
        ),
    ),
    Mutation(
        "a request that flow control held back is cancelled",
        "channels.http2_client.connection:Http2Connection",
        "        else:\n            self._cancel(stream)\n\n    def _ask_silent_peer",
        "\n    def _ask_silent_peer",
        (_ROW + "[waited-starved_from_the_start]",),
    ),
    Mutation(
        "a call ends once",
        "channels.http2_client.connection:Http2Connection._end",
        "        if stream.result is not None:\n            return\n        self._streams",
        "        self._streams",
        (_BYTES + "test_calls_that_end_together_are_told_once_each",),
    ),
    Mutation(
        "all that came is read at once",
        "channels.http2_client.connection:Http2Connection._take_in",
        "        while self._wire is not None:\n            try:\n                data",
        "        for _ in range(64):\n            try:\n                data",
        (_BYTES + "test_all_that_came_is_read_at_once",),
    ),
    Mutation(
        "the lease is asked before HEADERS",
        "channels.http2_client.connection:Http2Connection._advance",
        "                elif now > stream.not_after:\n                    self._end(stream, late())\n",
        "",
        (
            _WIRE + "test_a_call_that_waited_in_line_past_its_lease_is_not_sent",
            _WIRE + "test_a_lease_that_is_over_lets_no_frame_leave",
        ),
    ),
    Mutation(
        "the lease is asked before DATA that was held back",
        "channels.http2_client.connection:Http2Connection._go_on",
        "        if monotonic() > stream.not_after:\n            self._cancel(stream)\n",
        "        if False:\n            self._cancel(stream)\n",
        (_WIRE + "test_a_body_that_flow_control_held_past_the_lease_is_not_sent",),
    ),
    Mutation(
        "what came is read before a call is written",
        "channels.http2_client.connection:Http2Connection.begin",
        "            self._take_in()  # GOAWAY",
        "            # GOAWAY",
        (_WIRE + "test_what_came_is_read_before_a_call_is_written",),
    ),
    Mutation(
        "no request leaves before the provider's SETTINGS",
        "channels.http2_client.connection:Http2Connection._may_begin",
        "            self._greeted\n            and self._pinged_at is None\n",
        "            self._pinged_at is None\n",
        (_ROW + "[waited-no_settings]",),
    ),
    Mutation(
        "no request leaves while a PING is unanswered",
        "channels.http2_client.connection:Http2Connection._may_begin",
        "            and self._pinged_at is None\n",
        "",
        (_WIRE + "test_while_a_ping_is_unanswered_no_call_is_written",),
    ),
    Mutation(
        "no more streams are open than the provider allows",
        "channels.http2_client.connection:Http2Connection._may_begin",
        "            and len(self._streams) < most\n",
        "",
        (_WIRE + "test_no_more_streams_are_open_than_the_provider_allows[1]",),
    ),
    Mutation(
        "a silent connection is given up",
        "channels.http2_client.connection:Http2Connection._ask_silent_peer",
        '                self._lose("timeout", "the provider did not answer a PING")\n',
        "                pass\n",
        (_WIRE + "test_a_silent_provider_is_asked_and_given_up",),
    ),
    Mutation(
        "a server that does not agree on HTTP/2 is sent nothing",
        "channels.http2_client.transport:Http2Transport._dialled",
        "        if isinstance(wire, TlsWire) and wire.protocol != _ALPN:\n",
        "        if False:\n",
        (_WIRE + "test_a_server_that_does_not_agree_on_http2_sends_nothing[offered0]",),
    ),
    Mutation(
        "accounts of two keys have connections of their own",
        "channels.http2_client.transport:Http2Transport._route",
        'origin = (url.scheme, url.netloc, ca_file, extensions.get("login", ""))\n',
        'origin = (url.scheme, url.netloc, ca_file, "")\n',
        (_APNS + "test_accounts_of_two_keys_have_connections_of_their_own",),
    ),
    Mutation(
        "a fresh provider token that is called expired is not replaced",
        "channels.providers.apns.token_source:ApnsTokens.request",
        "        if stale and issued_at(stale) >= issued:\n",
        "        if False:\n",
        (
            _APNS + "test_a_fresh_token_that_is_called_expired_is_a_refused_login_and_not_replaced",
            _APNS + "test_a_clock_that_is_hours_behind_is_a_refused_login_that_says_so",
        ),
    ),
    Mutation(
        "only the notification's own id is an acceptance",
        "channels.providers.apns.adapter:ApnsChannel._taken",
        "        if answer.status_code == HTTPStatus.OK and given.lower() == _uuid(call.key):\n",
        "        if answer.status_code == HTTPStatus.OK:\n",
        (
            _APNS
            + "test_answers_that_the_documents_do_not_know_are_judged_by_status_and_phase[given0-Unknown]",
        ),
    ),
)
