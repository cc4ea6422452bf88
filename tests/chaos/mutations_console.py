"""The guards of the console, for `tests/chaos/mutations.py`."""

from __future__ import annotations

from tests.chaos.mutation import Mutation

_SECURITY = "tests/admin/test_security.py::"
_HOSTILE = "tests/admin/test_hostile_texts.py::"
_SESSIONS = "tests/admin/test_sessions.py::"
_HANGING = "tests/admin/test_oidc.py::test_a_provider_that_hangs_leaves_threads_to_pages[sqlite]"
_BURST = _SESSIONS + "test_a_burst_of_sign_ins_is_bounded_and_leaves_threads_to_pages[sqlite]"
_APPROVAL = (
    "tests/admin/test_campaign_pages.py::"
    "test_above_the_threshold_an_approver_who_is_another_person_lets_it_go"
)
_KEYS = "tests/admin/test_audit_key.py::"
_VOUCHED = _KEYS + "test_rows_before_a_key_row_are_those_that_it_vouches_for"
_RULES = "tests/admin/test_authorisation.py::"
_PEOPLE = "tests/admin/test_people.py::"
_DEMO = "tests/hongyan/test_demo_console.py::"
_FORGED = _SECURITY + "test_a_forged_form_is_refused_by_every_route_and_changes_nothing"
_HEADERS = _SECURITY + "test_every_answer_has_the_headers_and_a_nonce_of_its_own[sqlite]"
_TLS = _SECURITY + "test_over_tls_every_cookie_is_for_this_host_and_for_no_script[sqlite]"
_LIVE = _HOSTILE + "test_no_page_has_a_live_part_of_a_text"
_LOGIN = _SECURITY + "test_a_login_never_leads_elsewhere"
_HOST = (
    _SECURITY + "test_a_host_that_the_request_names_is_not_ours_where_the_address_is_set[sqlite]"
)
_ADDRESS = _SECURITY + "test_an_address_that_a_stranger_names_does_not_lift_the_login_limit[sqlite]"
_NO_FILE = _SECURITY + "test_no_file_outside_the_static_ones_is_read"

CONSOLE: tuple[Mutation, ...] = (
    # -- forged forms --
    Mutation(
        "the console takes no form without its token",
        "admin.guards:_check_origin",
        "    if not csrf_fits(csrf_cookie(connection, parts.secure), token):\n",
        "    if token and not csrf_fits(csrf_cookie(connection, parts.secure), token):\n",
        (f"{_FORGED}[no_token-sqlite]", f"{_FORGED}[an_empty_token-sqlite]"),
    ),
    Mutation(
        "the console takes no token of another session",
        "admin.web.csrf:csrf_fits",
        "hmac.compare_digest(mac.encode(), _mac(cookie, nonce).encode())",
        "len(mac) == 64",
        (
            f"{_FORGED}[another_sessions_token-sqlite]",
            f"{_SECURITY}test_a_token_holds_for_its_own_session_only_and_no_page_repeats_one[sqlite]",
        ),
    ),
    Mutation(
        "the console asks where a form comes from",
        "admin.web.csrf:is_own_site",
        "    return not origin or urlsplit(origin).netloc == host\n",
        "    return True\n",
        (f"{_FORGED}[another_sites_origin-sqlite]",),
    ),
    Mutation(
        "a host that begins as the console's is another one",
        "admin.web.csrf:is_own_site",
        "urlsplit(origin).netloc == host",
        "urlsplit(origin).netloc.startswith(host)",
        (f"{_FORGED}[a_name_that_begins_as_ours-sqlite]",),
    ),
    Mutation(
        "the console believes the browser about another site",
        "admin.web.csrf:is_own_site",
        'site not in ("same-origin", "none")',
        "not site",
        (
            f"{_FORGED}[another_site_by_the_browsers_word-sqlite]",
            f"{_FORGED}[a_site_beside_ours-sqlite]",
        ),
    ),
    Mutation(
        "where the console's address is set, a request does not choose it",
        "admin.guards:_check_origin",
        'host_of(parts.settings.console.url) or headers.get("host", "")',
        'headers.get("host", "")',
        (_HOST,),
    ),
    # -- texts --
    Mutation(
        "the console's templates escape every value",
        "admin.web.view:environment",
        "autoescape=True",
        "autoescape=False",
        (f"{_LIVE}[sqlite-markup]", f"{_LIVE}[sqlite-marks]"),
    ),
    Mutation(
        "the console shows marks that turn text around",
        "admin.web.view:environment",
        "        finalize=with_marks_shown,\n",
        "",
        (f"{_LIVE}[sqlite-marks]",),
    ),
    # -- headers --
    Mutation(
        "every answer of the console has its headers",
        "admin.app:furnish",
        "    app.asgi_handler = SecurityHeaders(app.state.router, secure=parts.secure)\n",
        "",
        (_HEADERS, f"{_NO_FILE}[/static/-sqlite]"),
    ),
    Mutation(
        "no page of the console is framed",
        "admin.web.headers:_POLICY",
        " frame-ancestors 'none'",
        "",
        (_HEADERS,),
    ),
    Mutation(
        "scripts of the console need the nonce",
        "admin.web.headers:_POLICY",
        "script-src 'nonce-{nonce}'",
        "script-src 'self' 'nonce-{nonce}'",
        (_HEADERS,),
    ),
    Mutation(
        "no page of the console is kept by the browser",
        "admin.web.headers:SecurityHeaders.__call__",
        '                    headers.append((b"cache-control", _kept(scope, message["status"])))\n',
        "                    pass\n",
        (_HEADERS,),
    ),
    # -- logins, sessions, cookies --
    Mutation(
        "the console computes a bounded number of password hashes at the same time",
        "admin.people.passwords:fits",
        "        with _TURNS:\n",
        "        if True:\n",
        (_BURST,),
    ),
    Mutation(
        "sign-ins do not take every thread of the console",
        "admin.people.passwords:place_among",
        "    if not places.acquire(blocking=False):\n",
        "    if not places.acquire():\n",
        (_BURST, _HANGING),
    ),
    Mutation(
        "a login of the console leads to no other site",
        "admin.web.view:local_path",
        '    if strange or not wanted.startswith("/") or wanted.startswith("//"):\n',
        '    if not wanted.startswith("/"):\n',
        (f"{_LOGIN}[//evil.example-sqlite]",),
    ),
    Mutation(
        "the console counts failed logins of an address",
        "admin.people.login_limits:LoginLimits.admits",
        "        return all(count <= most for count, most in counts)\n",
        "        return counts[0][0] <= counts[0][1]\n",
        (_ADDRESS,),
    ),
    Mutation(
        "the console counts failed logins of a name",
        "admin.people.login_limits:LoginLimits.admits",
        "        return all(count <= most for count, most in counts)\n",
        "        return counts[1][0] <= counts[1][1]\n",
        (f"{_SESSIONS}test_a_name_is_limited_even_with_the_right_password[sqlite]",),
    ),
    Mutation(
        "a logout of the console ends the session in the database",
        "admin.pages.login:logout",
        '    parts.people.sessions.end(request.cookies.get(name, ""))\n',
        "",
        (f"{_SECURITY}test_a_login_makes_a_new_token_and_the_old_one_is_worth_nothing[sqlite]",),
    ),
    Mutation(
        "the console's sessions end when roles change",
        "admin.people.users:Users.set_roles",
        'connection.execute(_END_SESSIONS, {"id": user})',
        "None",
        (
            f"{_SECURITY}test_a_change_of_role_through_the_page_ends_the_session_at_once[sqlite]",
            f"{_SESSIONS}test_a_change_of_the_user_ends_its_sessions[sqlite-roles]",
        ),
    ),
    Mutation(
        "the console's sessions end by age and idleness",
        "admin.people.sessions:Sessions._is_over",
        "now >= ends or now - seen >= self._limits.idle_ms or ",
        "",
        (
            f"{_SESSIONS}test_a_session_ends_by_idleness_and_by_age[sqlite-seen_at]",
            f"{_SESSIONS}test_a_session_ends_by_idleness_and_by_age[sqlite-ends_at]",
        ),
    ),
    Mutation(
        "no script reads a cookie of the console",
        "admin.web.cookies:secret_cookie",
        "        httponly=True,\n",
        "        httponly=False,\n",
        (_TLS,),
    ),
    Mutation(
        "over TLS the console's cookies go over TLS alone",
        "admin.web.cookies:secret_cookie",
        "        secure=secure,\n",
        "        secure=False,\n",
        (_TLS,),
    ),
    Mutation(
        "over TLS no other host sets the console's cookies",
        "admin.web.cookies:cookie_name",
        'f"__Host-{name}" if secure else name',
        "name",
        (_TLS,),
    ),
    # -- roles --
    Mutation(
        "the last admin of all lanes does not become one of some",
        "admin.people.users:_is_admin",
        "    return are_all_lanes(roles.get(Role.ADMIN, ()))\n",
        "    return Role.ADMIN in roles\n",
        (_PEOPLE + "test_the_last_admin_of_all_lanes_stays_one[sqlite]",),
    ),
    Mutation(
        "an admin of some lanes is no other admin",
        "admin.people.users:Users._is_admin_enough",
        '        return any(are_all_lanes(lanes.split(",")) for lanes in others)\n',
        "        return any(others)\n",
        (_PEOPLE + "test_the_last_admin_of_all_lanes_stays_one[sqlite]",),
    ),
    Mutation(
        "nobody approves an own campaign, however long the name is",
        "recovery.resend_jobs.rules:_name",
        '    return " ".join(name.split())[:AUTHOR_AT_MOST].rstrip().casefold()\n',
        '    return " ".join(name.split()).casefold()\n',
        (_APPROVAL + "[sqlite-long]",),
    ),
    Mutation(
        "a route of the console without a rule shows nothing",
        "admin.guards:admit",
        "        raise NoRule(str(handler))\n",
        "        return\n",
        (f"{_RULES}test_a_route_without_a_rule_shows_nothing[sqlite]",),
    ),
    Mutation(
        "the console asks for the role of a route",
        "admin.guards:_check_rule",
        "    person.require(access.role)\n",
        "",
        (f"{_RULES}test_a_role_passes_its_own_routes_and_no_other[viewer-sqlite]",),
    ),
    Mutation(
        "the console asks for a role for the lane of a request",
        "admin.guards:_check_rule",
        "            person.require(access.role, lane)\n",
        "            person.require(access.role)\n",
        (f"{_RULES}test_a_rule_with_a_lane_holds_for_every_value_in_path_query_and_form[sqlite]",),
    ),
    Mutation(
        "an admin of the console is one for all lanes",
        "admin.guards:_check_rule",
        "    if access.role is Role.ADMIN and not person.everywhere(Role.ADMIN):\n",
        "    if access.role is None:\n",
        (f"{_SECURITY}test_a_role_for_some_lanes_is_no_admin_of_all[sqlite]",),
    ),
    # -- sizes and characters --
    Mutation(
        "the console reads no body over the limit",
        "admin.app:create_app",
        "        request_max_body_size=MOST_BODY,\n",
        "        request_max_body_size=None,\n",
        (f"{_SECURITY}test_a_body_over_the_limit_is_refused_by_every_route[sqlite]",),
    ),
    Mutation(
        "a field of the console has a length",
        "admin.web.forms:SentForm.exactly",
        "        if len(value) > longest:\n",
        "        if len(value) < 0:\n",
        (f"{_SECURITY}test_a_field_and_a_reason_have_a_length[sqlite]",),
    ),
    Mutation(
        "a reason of the console has a length",
        "admin.web.forms:SentForm.reason",
        "        if len(value) > LONGEST_REASON:\n",
        "        if len(value) < 0:\n",
        (f"{_SECURITY}test_a_field_and_a_reason_have_a_length[sqlite]",),
    ),
    Mutation(
        "the console gives no NUL of an address to the database",
        "admin.guards:_refuse_nul",
        '    if any("\\0" in value for value in values):\n',
        "    if not values:\n",
        (f"{_SECURITY}test_no_parameter_reaches_the_database_as_sql[postgres]",),
    ),
    Mutation(
        "the console gives no NUL of a form to the database",
        "admin.web.forms:SentForm.exactly",
        "        if NUL in value:\n",
        "        if len(value) < 0:\n",
        (f"{_SECURITY}test_a_login_takes_no_sql[postgres]",),
    ),
    # -- audit --
    Mutation(
        "the console's audit is chained by its secret",
        "admin.audit.chain:AuditKey._signed",
        "        if not self._key:\n",
        "        if self._key is not None:\n",
        (f"{_PEOPLE}test_without_the_secret_nobody_makes_the_chain_anew[sqlite]",),
    ),
    Mutation(
        "the audit takes no row behind one under another secret",
        "admin.audit.journal:Journal.record",
        "        if not self._key.fits(number, before, seal):\n",
        "        if not seal and number:\n",
        (_KEYS + "test_no_row_comes_behind_one_under_another_secret[set-sqlite]",),
    ),
    Mutation(
        "a key row holds for the rows that it names alone",
        "admin.audit.chain:ChainCheck._begin",
        "        if row.subject == self.past:\n",
        "        if row.subject:\n",
        (_VOUCHED + "[sqlite-no_row_3-set]",),
    ),
    # -- the demo --
    Mutation(
        "the demo's console listens on loopback alone",
        "hongyan.demo.console:_check_loopback",
        "    if not is_loopback:\n",
        "    if not wanted.host:\n",
        (f"{_DEMO}test_nothing_but_loopback_is_listened_on[0.0.0.0:0]",),
    ),
    Mutation(
        "the demo's console opens no other ledger",
        "hongyan.demo.folder:last_folder",
        "    if not is_marked(folder):\n",
        "    if not folder:\n",
        (f"{_DEMO}test_no_other_ledger_is_served",),
    ),
)
