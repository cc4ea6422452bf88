"""Wrong configurations: each is answered by one sentence a problem, with its place and the way out.

Exit code 2, or 1 from commands that look for problems; never a traceback, never a secret.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hongyan.shell import said

UPGRADE = ("db", "upgrade")
STATUS = ("status",)
ACCOUNTS = ("accounts", "list")
RECEIPTS = ("receipts",)
RECOVERY = ("recovery", "--embedded")
WORKER = ("worker",)
TOPICS = ("topics", "apply")
POLICY = ("policy", "check")
TEMPLATES = ("templates", "check")
HOOK = (
    "[trace]\nkafka = false\n[accounts.w]\nprovider = 'webhook'\nendpoint = 'http://127.0.0.1:9/'\n"
)
NUMBER = "[templates.t]\nchannel = 'sms'\ntext = 'x'\n[templates.t.variables.n]\ntype = 'number'\n"
ALI = '[accounts.ali]\nprovider = "aliyun_sms"\naccess_key_id = "id"\nsign_name = "x"\n'
CHANNELS = "sms, email, wechat_official, wechat_mini, wecom, dingtalk, feishu, chat, push, webhook"
PROVIDERS = (
    "aliyun_sms, apns, dingtalk, dingtalk_robot, discord, fcm, feishu, feishu_robot, getui, huawei_sms,"
    " mattermost, null, resend, slack, smtp, teams, tencent_sms, twilio, volcengine_sms, webhook,"
    " wechat_mini, wechat_official, wecom, wecom_robot"
)
TRY = " (to try things out: allow_literal_secrets = true at the top)"

Row = tuple[str, dict[str, str], dict[str, str], tuple[str, ...], int, list[str]]
ROWS: list[Row] = [
    (
        "syntax",
        {"hongyan.toml": "[kafka"},
        {},
        UPGRADE,
        2,
        [
            (
                "hongyan.toml: no TOML: Expected ']' at the end of a table declaration (at "
                "end of document)"
            )
        ],
    ),
    (
        "a table that is a value",
        {"hongyan.toml": "kafka = 1"},
        {},
        UPGRADE,
        2,
        ["hongyan.toml:1: kafka: must be a table: [kafka]"],
    ),
    (
        "an unknown table",
        {"hongyan.toml": "[kafk]\nbootstrap = 'x'"},
        {},
        UPGRADE,
        2,
        ["hongyan.toml:1: kafk: unknown key; did you mean kafka?"],
    ),
    (
        "an unknown key",
        {"hongyan.toml": "[kafka]\nbootstrapp = 'x'"},
        {},
        UPGRADE,
        2,
        ["hongyan.toml:2: kafka.bootstrapp: unknown key; did you mean bootstrap?"],
    ),
    (
        "an unknown key at the top",
        {"hongyan.toml": "bootstrap = 'x'"},
        {},
        UPGRADE,
        2,
        ["hongyan.toml:1: bootstrap: unknown key; it belongs in [kafka]"],
    ),
    (
        "a wrong type",
        {"hongyan.toml": "[kafka]\nbootstrap = 1"},
        {},
        UPGRADE,
        2,
        ["hongyan.toml:2: kafka.bootstrap: expected str, got int"],
    ),
    (
        "a wrong choice",
        {"hongyan.toml": "[kafka]\ngroup_protocol = 'new'"},
        {},
        UPGRADE,
        2,
        [
            (
                "hongyan.toml:2: kafka.group_protocol: invalid enum value 'new'; write one "
                "of auto, consumer, classic"
            )
        ],
    ),
    (
        "a number as text",
        {"hongyan.toml": "[worker]\nlease_s = 'soon'"},
        {},
        UPGRADE,
        2,
        ["hongyan.toml:2: worker.lease_s: expected float, got str"],
    ),
    (
        "a duration with its unit",
        {"hongyan.toml": "[worker]\nlease_s = '30s'"},
        {},
        UPGRADE,
        2,
        ["hongyan.toml:2: worker.lease_s: expected float, got str; write 30 for 30s"],
    ),
    (
        "a number below the least",
        {"hongyan.toml": "[worker]\nlease_s = 0"},
        {},
        UPGRADE,
        2,
        ["hongyan.toml:2: worker.lease_s: expected float > 0.0"],
    ),
    (
        "a number above the most",
        {"hongyan.toml": "[recovery]\nshare = 2.0"},
        {},
        UPGRADE,
        2,
        ["hongyan.toml:2: recovery.share: expected float <= 1.0"],
    ),
    (
        "not a number",
        {"hongyan.toml": "[worker]\nlease_s = nan"},
        {},
        UPGRADE,
        2,
        ["hongyan.toml:2: worker.lease_s: must be a finite number"],
    ),
    (
        "a number beyond a float",
        {"hongyan.toml": "[worker]\nlease_s = 1e999"},
        {},
        UPGRADE,
        2,
        ["hongyan.toml:2: worker.lease_s: must be a finite number"],
    ),
    (
        "a number of too many bits",
        {"hongyan.toml": "[worker]\nlease_s = 999999999999999999999999999999"},
        {},
        UPGRADE,
        2,
        ["hongyan.toml:2: worker.lease_s: is a number beyond 64 bits"],
    ),
    (
        "a text for a list",
        {"hongyan.toml": "[worker]\nlanes = 'sms.*'"},
        {},
        UPGRADE,
        2,
        ["hongyan.toml:2: worker.lanes: expected array, got str"],
    ),
    (
        "a number in a list of texts",
        {"hongyan.toml": "[worker]\nlanes = [1]"},
        {},
        UPGRADE,
        2,
        ["hongyan.toml:2: worker.lanes[0]: expected str, got int"],
    ),
    (
        "a table twice",
        {"hongyan.toml": "[kafka]\n[kafka]"},
        {},
        UPGRADE,
        2,
        [("hongyan.toml:2: no TOML: Cannot declare ('kafka',) twice (at line 2, column 7)")],
    ),
    (
        "a key twice",
        {"hongyan.toml": "[log]\nlevel = 'info'\nlevel = 'debug'"},
        {},
        UPGRADE,
        2,
        ["hongyan.toml: no TOML: Cannot overwrite a value (at end of document)"],
    ),
    (
        "a level nobody knows",
        {"hongyan.toml": "[log]\nlevel = 'loud'"},
        {},
        UPGRADE,
        2,
        [
            (
                "hongyan.toml:2: log.level: invalid enum value 'loud'; write one of debug, "
                "info, warning, error"
            )
        ],
    ),
    (
        "what is no key of the file",
        {"hongyan.toml": "base = '/etc'"},
        {},
        UPGRADE,
        2,
        ["hongyan.toml:1: base: unknown key; did you mean database?"],
    ),
    (
        "a text for a flag",
        {"hongyan.toml": "allow_literal_secrets = 'maybe'"},
        {},
        UPGRADE,
        2,
        ["hongyan.toml:1: allow_literal_secrets: expected bool, got str"],
    ),
    (
        "a secret of alerts",
        {"hongyan.toml": "[alerts]\nsecret = 'geheim'"},
        {},
        UPGRADE,
        2,
        [
            (
                "hongyan.toml:2: alerts.secret: a secret must not be in the file; write "
                f'secret_file = "/path", or set HONGYAN_ALERTS__SECRET{TRY}'
            )
        ],
    ),
    (
        "headers of a collector",
        {"hongyan.toml": "[telemetry]\nheaders = 'authorization=geheim'"},
        {},
        UPGRADE,
        2,
        [
            (
                "hongyan.toml:2: telemetry.headers: a secret must not be in the file; write "
                f'headers_file = "/path", or set HONGYAN_TELEMETRY__HEADERS{TRY}'
            )
        ],
    ),
    (
        "a collector that is no URL, and headers that are none",
        {"hongyan.toml": f"{HOOK}[telemetry]\notlp_endpoint = 'collector:4318'"},
        {"HONGYAN_TELEMETRY__HEADERS": "geheim"},
        WORKER,
        2,
        [
            "hongyan.toml:7: telemetry.otlp_endpoint: must be a full http:// or https:// URL",
            (
                "HONGYAN_TELEMETRY__HEADERS: telemetry.headers: must be NAME=VALUE, several separated by"
                " commas"
            ),
        ],
    ),
    (
        "a share of traces above one",
        {"hongyan.toml": "[telemetry]\nsample_ratio = 2"},
        {},
        UPGRADE,
        2,
        ["hongyan.toml:2: telemetry.sample_ratio: expected float <= 1.0"],
    ),
    (
        "a payload key",
        {"hongyan.toml": "[database]\npayload_key = 'geheim'"},
        {},
        UPGRADE,
        2,
        [
            (
                "hongyan.toml:2: database.payload_key: a secret must not be in the file; "
                'write payload_key_file = "/path", or set '
                f"HONGYAN_DATABASE__PAYLOAD_KEY{TRY}"
            )
        ],
    ),
    (
        "a password of the database",
        {"hongyan.toml": "[database]\nurl = 'postgresql://hongyan:geheim@db/hongyan'"},
        {},
        UPGRADE,
        2,
        [
            (
                "hongyan.toml:2: database.url: holds a password; a secret must not be in "
                f'the file; write url_file = "/path", or set HONGYAN_DATABASE__URL{TRY}'
            )
        ],
    ),
    (
        "a password in the query",
        {"hongyan.toml": "[database]\nurl = 'postgresql://db/hongyan?user=u&password=geheim'"},
        {},
        UPGRADE,
        2,
        [
            (
                "hongyan.toml:2: database.url: holds a password; a secret must not be in "
                f'the file; write url_file = "/path", or set HONGYAN_DATABASE__URL{TRY}'
            )
        ],
    ),
    (
        "a password of Redis",
        {"hongyan.toml": "[redis]\nurl = 'redis://:geheim@127.0.0.1:6379/0'"},
        {},
        UPGRADE,
        2,
        [
            (
                "hongyan.toml:2: redis.url: holds a password; a secret must not be in the "
                f'file; write url_file = "/path", or set HONGYAN_REDIS__URL{TRY}'
            )
        ],
    ),
    (
        "a password of Kafka",
        {"hongyan.toml": "[kafka]\nclient = { 'sasl.password' = 'geheim' }"},
        {},
        UPGRADE,
        2,
        [
            (
                "hongyan.toml:2: kafka.client.sasl.password: a secret must not be in the "
                'file; write "sasl.password_file" = "/path", or set '
                f"HONGYAN_KAFKA__CLIENT__SASL_PASSWORD{TRY}"
            )
        ],
    ),
    (
        "a secret of an account",
        {"hongyan.toml": ALI + "access_key_secret = 'geheim'"},
        {},
        ACCOUNTS,
        2,
        [
            (
                "hongyan.toml:5: accounts.ali.access_key_secret: a secret must not be in "
                'the file; write access_key_secret_file = "/path", or set '
                f"HONGYAN_ACCOUNTS__ALI__ACCESS_KEY_SECRET{TRY}"
            )
        ],
    ),
    (
        "a secret of an account that a variable spells otherwise",
        {"hongyan.toml": ALI.replace("ali]", "main-sms]") + "access_key_secret = 'geheim'"},
        {},
        ACCOUNTS,
        2,
        [
            (
                "hongyan.toml:5: accounts.main-sms.access_key_secret: a secret must not be "
                'in the file; write access_key_secret_file = "/path", or set '
                f"HONGYAN_ACCOUNTS__MAIN_SMS__ACCESS_KEY_SECRET{TRY}"
            )
        ],
    ),
    (
        "a secret's file that is not there",
        {"hongyan.toml": "[database]\nurl_file = 'nowhere'"},
        {},
        UPGRADE,
        2,
        ["hongyan.toml:2: database.url_file: nowhere: No such file or directory"],
    ),
    (
        "a secret given twice",
        {"hongyan.toml": "[database]\nurl = 'sqlite:///h.db'\nurl_file = 'hongyan.toml'"},
        {},
        UPGRADE,
        2,
        [("hongyan.toml:3: database.url_file: is given beside url; keep one of the two")],
    ),
    (
        "a secret's file that is empty",
        {"hongyan.toml": ALI + "access_key_secret_file = 'empty'", "empty": "\n"},
        {},
        ACCOUNTS,
        2,
        ["hongyan.toml:5: accounts.ali.access_key_secret_file: empty: is empty"],
    ),
    (
        "no database",
        {"hongyan.toml": "[database]\nurl = ''"},
        {},
        UPGRADE,
        2,
        [
            (
                "hongyan.toml:2: database.url: it cannot be read: write postgresql://… or "
                "sqlite:///FILE"
            )
        ],
    ),
    (
        "a database of another kind",
        {"hongyan.toml": "[database]\nurl = 'mysql://x/y'"},
        {},
        UPGRADE,
        2,
        [
            (
                "hongyan.toml:2: database.url: mysql is not supported: use postgresql://… "
                "or sqlite:///FILE"
            )
        ],
    ),
    (
        "a database that is no URL",
        {"hongyan.toml": "[database]\nurl = 'nonsense'"},
        {},
        UPGRADE,
        2,
        [
            (
                "hongyan.toml:2: database.url: it cannot be read: write postgresql://… or "
                "sqlite:///FILE"
            )
        ],
    ),
    (
        "a database in memory",
        {"hongyan.toml": "[database]\nurl = 'sqlite://'"},
        {},
        UPGRADE,
        2,
        [("hongyan.toml:2: database.url: an SQLite ledger needs a file: sqlite:///hongyan.db")],
    ),
    (
        "a database with an unknown option",
        {"hongyan.toml": "[database]\nurl = 'postgresql://h/d?mood=good'"},
        {},
        UPGRADE,
        2,
        [
            (
                "hongyan.toml:2: database.url: libpq does not take it: invalid connection "
                'option "mood"'
            )
        ],
    ),
    (
        "a database's port beyond all",
        {"hongyan.toml": "[database]\nurl = 'postgresql://h:99999999/d'"},
        {},
        UPGRADE,
        2,
        ["hongyan.toml:2: database.url: there are ports from 1 to 65535"],
    ),
    (
        "a ledger that is not there",
        {"hongyan.toml": "[database]\nurl = 'sqlite:///nowhere.db'"},
        {},
        STATUS,
        2,
        ["there is no ledger at nowhere.db; run `hongyan db upgrade`"],
    ),
    (
        "a payload key that is too short",
        {"hongyan.toml": "allow_literal_secrets = true\n[database]\npayload_key = 'c2hvcnQ='"},
        {},
        UPGRADE,
        2,
        [
            (
                "hongyan.toml:3: database.payload_key: must be base64 of 32 bytes: "
                "`openssl rand -base64 32`"
            )
        ],
    ),
    (
        "a property that safety rests on",
        {"hongyan.toml": "[kafka]\nclient = { acks = '1' }"},
        {},
        TOPICS,
        2,
        [
            (
                "hongyan.toml:2: kafka.client: 'acks' cannot be set, because the promise "
                "that no message is lost, doubled or reordered depends on it; remove the "
                "line"
            )
        ],
    ),
    (
        "a property that has a setting",
        {"hongyan.toml": "[kafka]\nclient = { 'group.id' = 'x' }"},
        {},
        WORKER,
        2,
        ["hongyan.toml:2: kafka.client: set kafka.group_id instead of 'group.id'"],
    ),
    (
        "an unknown provider",
        {"hongyan.toml": "[accounts.a]\nprovider = 'webhok'"},
        {},
        ACCOUNTS,
        2,
        [("hongyan.toml:2: accounts.a.provider: unknown provider 'webhok'; did you mean webhook?")],
    ),
    (
        "no provider",
        {"hongyan.toml": "[accounts.a]\nendpoint = 'http://x'"},
        {},
        ACCOUNTS,
        2,
        [f"hongyan.toml:1: accounts.a.provider: is missing; known are {PROVIDERS}"],
    ),
    (
        "an account that is no table",
        {"hongyan.toml": "[accounts]\nmain = 'webhook'"},
        {},
        ACCOUNTS,
        2,
        ["hongyan.toml:2: accounts.main: must be a table: [accounts.NAME]"],
    ),
    (
        "an endpoint of another scheme",
        {"hongyan.toml": "[accounts.a]\nprovider = 'webhook'\nendpoint = 'ftp://x'"},
        {},
        ACCOUNTS,
        2,
        [("hongyan.toml:3: accounts.a.endpoint: must be a full http:// or https:// URL")],
    ),
    (
        "an endpoint with a login",
        {"hongyan.toml": "[accounts.a]\nprovider = 'webhook'\nendpoint = 'http://u:p@h/'"},
        {},
        ACCOUNTS,
        2,
        [
            (
                "hongyan.toml:3: accounts.a.endpoint: must not hold a user name or "
                "password; give a token instead"
            )
        ],
    ),
    (
        "a rate of none",
        {
            "hongyan.toml": (
                "[accounts.a]\nprovider = 'webhook'\nendpoint = 'http://h/'\nrate_per_s = 0"
            )
        },
        {},
        ACCOUNTS,
        2,
        ["hongyan.toml:4: accounts.a.rate_per_s: expected float > 0.0"],
    ),
    (
        "an unknown option of an account",
        {"hongyan.toml": "[accounts.a]\nprovider = 'webhook'\nendpoint = 'http://h/'\nmood = 1"},
        {},
        ACCOUNTS,
        2,
        [
            (
                "hongyan.toml:4: accounts.a.mood: unknown key; known are "
                "other_signing_secret, query_lag_s, signing_secret, status_query, token"
            )
        ],
    ),
    (
        "an option that is missing",
        {"hongyan.toml": ALI},
        {},
        ACCOUNTS,
        2,
        ["hongyan.toml:1: accounts.ali.access_key_secret: is missing"],
    ),
    (
        "a robot without a group",
        {"hongyan.toml": "[accounts.ops]\nprovider = 'wecom_robot'"},
        {},
        ACCOUNTS,
        2,
        ["hongyan.toml:1: accounts.ops.key: is missing"],
    ),
    (
        "authorities that are not there",
        {"hongyan.toml": HOOK + "ca_file = 'nowhere.pem'"},
        {},
        WORKER,
        2,
        [
            (
                "hongyan.toml:6: accounts.w.ca_file: nowhere.pem: no such file; give a PEM "
                "file, or leave it out"
            )
        ],
    ),
    (
        "authorities of alerts that are not there",
        {"hongyan.toml": "[alerts]\nwebhook = 'https://h/'\nca_file = 'nowhere.pem'"},
        {},
        WORKER,
        2,
        [
            (
                "hongyan.toml:3: alerts.ca_file: nowhere.pem: no such file; give a PEM "
                "file, or leave it out"
            )
        ],
    ),
    (
        "an alert hook that is no address",
        {"hongyan.toml": "[alerts]\nwebhook = 'h'"},
        {},
        WORKER,
        2,
        ["hongyan.toml:2: alerts.webhook: must be a full http:// or https:// URL"],
    ),
    (
        "receipts of nobody",
        {"hongyan.toml": "[receipts]\nlisten = '127.0.0.1:0'"},
        {},
        RECEIPTS,
        2,
        [("hongyan.toml:1: receipts.accounts: name the accounts whose providers report here")],
    ),
    (
        "receipts of an unknown account",
        {"hongyan.toml": HOOK + "[receipts.accounts.v]\npull = true"},
        {},
        WORKER,
        2,
        [("hongyan.toml:6: receipts.accounts.v: there is no account of this name in [accounts]")],
    ),
    (
        "receipts of a provider that sends none",
        {"hongyan.toml": HOOK + "[receipts.accounts.w]"},
        {},
        RECEIPTS,
        2,
        [
            (
                "hongyan.toml:6: receipts.accounts.w: webhook sends no receipts; those of "
                "aliyun_sms, getui, huawei_sms, resend, tencent_sms, twilio, "
                "volcengine_sms, wechat_mini, wechat_official do"
            )
        ],
    ),
    (
        "an address without a port",
        {"hongyan.toml": "[worker]\nhealth_address = 'localhost'"},
        {},
        WORKER,
        2,
        [
            (
                "hongyan.toml:2: worker.health_address: 'localhost': write HOST:PORT, as "
                "127.0.0.1:9464 or [::1]:9464"
            )
        ],
    ),
    (
        "an address with a port beyond all",
        {"hongyan.toml": "[recovery]\nhealth_address = 'h:99999'"},
        {},
        RECOVERY,
        2,
        [
            (
                "hongyan.toml:2: recovery.health_address: 'h:99999': write HOST:PORT, as "
                "127.0.0.1:9466 or [::1]:9466"
            )
        ],
    ),
    (
        "an IPv6 address without brackets",
        {"hongyan.toml": "[receipts]\nlisten = '::1:9470'"},
        {},
        WORKER,
        2,
        [
            (
                "hongyan.toml:2: receipts.listen: '::1:9470': write HOST:PORT, as "
                "127.0.0.1:9470 or [::1]:9470"
            )
        ],
    ),
    (
        "a Redis of another scheme",
        {"hongyan.toml": "[redis]\nurl = 'http://h'"},
        {},
        RECOVERY,
        2,
        [
            (
                "hongyan.toml:2: redis.url: Redis URL must specify one of the following "
                "schemes (redis://, rediss://, unix://)"
            )
        ],
    ),
    (
        "a Redis with an unknown option",
        {"hongyan.toml": "[redis]\nurl = 'redis://h?mood=good'"},
        {},
        RECOVERY,
        2,
        [
            (
                "hongyan.toml:2: redis.url: it has an option that is not known, or a wrong "
                "value of one"
            )
        ],
    ),
    (
        "lanes that no pattern names",
        {"hongyan.toml": "[worker]\nlanes = ['fax.*']"},
        {},
        WORKER,
        2,
        [
            (
                "hongyan.toml:2: worker.lanes: no lane matches 'fax.*': write CHANNEL.KIND "
                f"with * and ?, where channel is one of {CHANNELS} and kind one of "
                "verification, notice, marketing"
            )
        ],
    ),
    (
        "no lanes",
        {"hongyan.toml": "[worker]\nlanes = []"},
        {},
        WORKER,
        2,
        [
            (
                "hongyan.toml:2: worker.lanes: is empty, so nothing would be served; write "
                '["*"] for all lanes'
            )
        ],
    ),
    (
        "a heartbeat longer than the lease",
        {"hongyan.toml": "[worker]\nlease_s = 10\nheartbeat_s = 20"},
        {},
        WORKER,
        2,
        [
            (
                "hongyan.toml:3: worker.heartbeat_s: 20 is not below lease_s 10, so a live "
                "worker would count as dead; leave it out, or lower it"
            )
        ],
    ),
    (
        "a policy that is not there",
        {"hongyan.toml": "[policy]\nfile = 'nowhere.toml'"},
        {},
        WORKER,
        2,
        [
            (
                "hongyan.toml:2: policy.file: nowhere.toml: no such file; give one, or "
                "leave it out for the defaults"
            )
        ],
    ),
    (
        "templates that are not there",
        {"hongyan.toml": "[templates]\nfile = 'nowhere.toml'"},
        {},
        WORKER,
        2,
        [("hongyan.toml:2: templates.file: nowhere.toml: no such file; give one, or leave it out")],
    ),
    (
        "a policy's syntax",
        {"policy.toml": "[defaults"},
        {},
        POLICY,
        1,
        [
            (
                "policy.toml:1  the file: no TOML: Expected ']' at the end of a table "
                "declaration (at end of document)"
            )
        ],
    ),
    (
        "a policy's key outside of tables",
        {"policy.toml": "threads = 3"},
        {},
        POLICY,
        1,
        ["policy.toml:1  threads: is outside of any table; put it under [defaults]"],
    ),
    (
        "a policy's unknown table",
        {"policy.toml": "[default]\nthreads = 3"},
        {},
        POLICY,
        1,
        ["policy.toml:1  default: unknown table; did you mean defaults?"],
    ),
    (
        "a policy's unknown key",
        {"policy.toml": "[defaults]\nthread = 3"},
        {},
        POLICY,
        1,
        ["policy.toml:2  defaults.thread: unknown key; did you mean threads?"],
    ),
    (
        "a policy's value out of range",
        {"policy.toml": "[defaults]\nthreads = 0"},
        {},
        POLICY,
        1,
        ["policy.toml:2  defaults.threads: expected int >= 1, got 0"],
    ),
    (
        "a policy's duration with its unit",
        {"policy.toml": "[defaults]\nttl_ms = '24h'"},
        {},
        POLICY,
        1,
        [("policy.toml:2  defaults.ttl_ms: expected int, got str; write 86400000 for 24h")],
    ),
    (
        "a policy's wrong choice",
        {"policy.toml": "[defaults]\nguarantee = 'at_most_twice'"},
        {},
        POLICY,
        1,
        [
            (
                "policy.toml:2  defaults.guarantee: 'at_most_twice' is none of "
                "best_effort, at_most_once, at_least_once; did you mean at_most_once?"
            )
        ],
    ),
    (
        "a policy's lane that is not",
        {"policy.toml": "[lanes.'sms.notise']\nthreads = 1"},
        {},
        POLICY,
        1,
        ['policy.toml:1  lanes."sms.notise": no such lane; did you mean sms.notice?'],
    ),
    (
        "a policy's lane without quotes",
        {"policy.toml": "[lanes.sms.notice]\nthreads = 1"},
        {},
        POLICY,
        1,
        ['policy.toml:1  lanes.sms: quote the name: [lanes."sms.notice"]'],
    ),
    (
        "a policy's pattern that fits no lane",
        {"policy.toml": "[lanes.'fax.*']\nthreads = 1"},
        {},
        POLICY,
        1,
        [
            (
                'policy.toml:1  lanes."fax.*": no such lane; write CHANNEL.KIND with * and '
                f"?, where channel is one of {CHANNELS}"
            )
        ],
    ),
    (
        "a policy's two patterns for one field",
        {"policy.toml": "[lanes.'sms.*']\nthreads = 1\n[lanes.'*.notice']\nthreads = 2"},
        {},
        POLICY,
        1,
        [
            (
                'policy.toml:4  lanes."*.notice".threads: is set for sms.notice by '
                '[lanes."sms.*"], too; set it in one of the two, or in [lanes."sms.notice"]'
            )
        ],
    ),
    (
        "a policy's account that is not",
        {"policy.toml": "[lanes.'webhook.notice']\naccounts = ['v']", "hongyan.toml": HOOK},
        {},
        POLICY,
        1,
        [
            (
                "policy.toml:2  lanes.\"webhook.notice\".accounts: account 'v' is not in "
                "hongyan.toml; add [accounts.NAME] there"
            )
        ],
    ),
    (
        "a policy's account twice",
        {"policy.toml": "[lanes.'webhook.notice']\naccounts = ['w', 'w']", "hongyan.toml": HOOK},
        {},
        POLICY,
        1,
        [
            (
                'policy.toml:2  lanes."webhook.notice".accounts: names an account twice; '
                "name each once"
            )
        ],
    ),
    (
        "a policy's weights of none",
        {"policy.toml": "[lanes.'webhook.notice']\naccounts = { w = 0 }", "hongyan.toml": HOOK},
        {},
        POLICY,
        1,
        [
            (
                'policy.toml:2  lanes."webhook.notice".accounts: gives no account a weight '
                "above 0, so nothing would choose one"
            )
        ],
    ),
    (
        "a policy's life above its most",
        {"policy.toml": "[lanes.'sms.notice']\nttl_ms = 10\nmax_ttl_ms = 5"},
        {},
        POLICY,
        1,
        [
            (
                'policy.toml:1  lanes."sms.notice".timeout_ms: 5000 is not below ttl_ms '
                "10: no call could end in time"
            ),
            (
                'policy.toml:2  lanes."sms.notice".ttl_ms: 10 is above max_ttl_ms 5; lower '
                "it, or raise that"
            ),
        ],
    ),
    (
        "a policy's time zone that is not",
        {
            "policy.toml": (
                "[defaults.quiet_hours]\nwindows = ['22:00-08:00']\nzone = 'Asia/Shanghei'"
            )
        },
        {},
        POLICY,
        1,
        [
            (
                "policy.toml:3  defaults.quiet_hours.zone: there is no time zone "
                "'Asia/Shanghei'; did you mean Asia/Shanghai?"
            )
        ],
    ),
    (
        "a policy's window that is no time",
        {"policy.toml": "[defaults.quiet_hours]\nwindows = ['25:00-26:00']"},
        {},
        POLICY,
        1,
        [
            (
                "policy.toml:2  defaults.quiet_hours.windows: '25:00' is no time of day; "
                "write HH:MM-HH:MM"
            )
        ],
    ),
    (
        "a policy that a worker does not start with",
        {"policy.toml": "[defaults]\nthreads = 0\nqueue = -1"},
        {},
        WORKER,
        2,
        [
            "policy.toml:2: defaults.threads: expected int >= 1, got 0",
            "policy.toml:3: defaults.queue: expected int >= 0, got -1",
        ],
    ),
    (
        "a template's syntax",
        {"templates.toml": "[templates"},
        {},
        TEMPLATES,
        1,
        [
            (
                "templates.toml:1  the file: no TOML: Expected ']' at the end of a table "
                "declaration (at end of document)"
            )
        ],
    ),
    (
        "a template's channel",
        {"templates.toml": "[templates.t]\nchannel = 'fax'\n"},
        {},
        TEMPLATES,
        1,
        [
            (
                "templates.toml:1  templates.t: says nothing: give subject, text, …, or "
                "template_id and params"
            ),
            (
                "templates.toml:2  templates.t.channel: 'fax' is no channel; write one of "
                f"{CHANNELS}"
            ),
        ],
    ),
    (
        "a template's brackets",
        {"templates.toml": "[templates.t]\nchannel = 'sms'\ntext = '{{ x'\n"},
        {},
        TEMPLATES,
        1,
        [
            (
                "templates.toml:3  templates.t.text: unexpected end of template, expected "
                "'end of print statement'."
            )
        ],
    ),
    (
        "a template's default beyond all",
        {"templates.toml": NUMBER + "default = inf"},
        {},
        TEMPLATES,
        1,
        [("templates.toml:1  the file: templates.t.variables.n.default: must be a finite number")],
    ),
    (
        "one underscore",
        {},
        {"HONGYAN_DATABASE_URL": "postgresql://h/d"},
        UPGRADE,
        2,
        [("HONGYAN_DATABASE_URL: there is no such setting; did you mean HONGYAN_DATABASE__URL?")],
    ),
    (
        "one underscore of a file",
        {},
        {"HONGYAN_DATABASE_URL_FILE": "/run/x"},
        UPGRADE,
        2,
        [
            (
                "HONGYAN_DATABASE_URL_FILE: there is no such setting; did you mean "
                "HONGYAN_DATABASE__URL_FILE?"
            )
        ],
    ),
    (
        "one underscore and a typing error",
        {},
        {"HONGYAN_KAFKA_BOOTSTRAPS": "h:1"},
        UPGRADE,
        2,
        [
            (
                "HONGYAN_KAFKA_BOOTSTRAPS: there is no such setting; did you mean "
                "HONGYAN_KAFKA__BOOTSTRAP?"
            )
        ],
    ),
    (
        "one underscore of an account",
        {"hongyan.toml": ALI},
        {"HONGYAN_ACCOUNTS_ALI_ACCESS_KEY_SECRET": "geheim"},
        ACCOUNTS,
        2,
        [
            (
                "HONGYAN_ACCOUNTS_ALI_ACCESS_KEY_SECRET: there is no such setting; did you "
                "mean HONGYAN_ACCOUNTS__ALI__ACCESS_KEY_SECRET?"
            )
        ],
    ),
    (
        "one underscore of two",
        {"hongyan.toml": ALI},
        {"HONGYAN_ACCOUNTS__ALI_ACCESS_KEY_SECRET": "geheim"},
        ACCOUNTS,
        2,
        [
            (
                "HONGYAN_ACCOUNTS__ALI_ACCESS_KEY_SECRET: there is no such setting; did "
                "you mean HONGYAN_ACCOUNTS__ALI__ACCESS_KEY_SECRET?"
            )
        ],
    ),
    (
        "a variable that means nothing",
        {},
        {"HONGYAN_MOOD": "good"},
        UPGRADE,
        2,
        [
            (
                "HONGYAN_MOOD: there is no such setting; a setting is written "
                "HONGYAN_TABLE__KEY, with two underscores; rename it if it is for others"
            )
        ],
    ),
    (
        "a port that Kubernetes did not make",
        {},
        {"HONGYAN_WORKER_PORT": "9464"},
        UPGRADE,
        2,
        [
            (
                "HONGYAN_WORKER_PORT: there is no such setting; a setting is written "
                "HONGYAN_TABLE__KEY, with two underscores; rename it if it is for others"
            )
        ],
    ),
    (
        "a variable's unknown table",
        {},
        {"HONGYAN_DATBASE__URL": "x"},
        UPGRADE,
        2,
        [("HONGYAN_DATBASE__URL: datbase: unknown key; did you mean HONGYAN_DATABASE__URL?")],
    ),
    (
        "a variable's unknown key",
        {},
        {"HONGYAN_DATABASE__URLL": "x"},
        UPGRADE,
        2,
        [
            (
                "HONGYAN_DATABASE__URLL: database.urll: unknown key; did you mean "
                "HONGYAN_DATABASE__URL?"
            )
        ],
    ),
    (
        "a variable below a value",
        {},
        {"HONGYAN_DATABASE__URL__X": "x"},
        UPGRADE,
        2,
        ["HONGYAN_DATABASE__URL__X: database.url: expected str, got object"],
    ),
    (
        "a variable for a table",
        {},
        {"HONGYAN_KAFKA": "x"},
        UPGRADE,
        2,
        [
            (
                "HONGYAN_KAFKA: there is no such setting; a setting is written "
                "HONGYAN_TABLE__KEY, with two underscores; rename it if it is for others"
            )
        ],
    ),
    (
        "a variable's text for a number",
        {},
        {"HONGYAN_WORKER__LEASE_S": "soon"},
        UPGRADE,
        2,
        ["HONGYAN_WORKER__LEASE_S: worker.lease_s: expected float, got str"],
    ),
    (
        "a variable's flag",
        {},
        {"HONGYAN_TRACE__KAFKA": "perhaps"},
        UPGRADE,
        2,
        ["HONGYAN_TRACE__KAFKA: trace.kafka: expected bool, got str"],
    ),
    (
        "a variable's file that is not there",
        {},
        {"HONGYAN_DATABASE__URL_FILE": "nowhere"},
        UPGRADE,
        2,
        [("HONGYAN_DATABASE__URL_FILE: database.url_file: nowhere: No such file or directory")],
    ),
    (
        "a variable that is nested too deeply",
        {},
        {"HONGYAN_" + "__".join("A" * 40): "x"},
        UPGRADE,
        2,
        ["HONGYAN_A__A__A__A__A__A__A__A__A__A__A_…: a.a.a: is nested deeper than 32"],
    ),
    (
        "a configuration that is not there",
        {},
        {"HONGYAN_CONFIG": "nowhere.toml"},
        UPGRADE,
        2,
        ["nowhere.toml: no such file; give --config or HONGYAN_CONFIG a file"],
    ),
    (
        "a variable of an account that is not",
        {"hongyan.toml": ALI},
        {"HONGYAN_ACCOUNTS__ALY__ACCESS_KEY_SECRET": "geheim"},
        ACCOUNTS,
        2,
        [
            (
                "HONGYAN_ACCOUNTS__ALY__ACCESS_KEY_SECRET: accounts.aly: there is no "
                "account of this name; did you mean ali?"
            )
        ],
    ),
    (
        "a variable of two accounts",
        {"hongyan.toml": ALI + ALI.replace("ali]", "main-sms]") + ALI.replace("ali]", "main_sms]")},
        {"HONGYAN_ACCOUNTS__MAIN_SMS__ACCESS_KEY_SECRET": "geheim"},
        ACCOUNTS,
        2,
        [
            (
                "HONGYAN_ACCOUNTS__MAIN_SMS__ACCESS_KEY_SECRET: "
                "accounts.main_sms.access_key_secret: may mean main-sms or main_sms, which "
                "a shell spells alike; rename one, or write access_key_secret_file in its "
                "table"
            )
        ],
    ),
    (
        "an account's secret that is refused by variable",
        {"hongyan.toml": ALI},
        {"HONGYAN_ACCOUNTS__ALI__ACCESS_KEY_SECRET": "ü"},
        ACCOUNTS,
        2,
        [
            (
                "HONGYAN_ACCOUNTS__ALI__ACCESS_KEY_SECRET: accounts.ali.access_key_secret: "
                "must be a text of printable ASCII characters"
            )
        ],
    ),
    (
        "many at once",
        {
            "hongyan.toml": (
                "[kafka]\n"
                "bootstrp = 'x'\n"
                "[worker]\n"
                "lease_s = -1\n"
                "[accounts.a]\n"
                "provider = 'fax'\n"
                "[alerts]\n"
                "secret = 'geheim'"
            )
        },
        {"HONGYAN_DATABASE_URL": "x"},
        UPGRADE,
        2,
        [
            "hongyan.toml:2: kafka.bootstrp: unknown key; did you mean bootstrap?",
            "hongyan.toml:4: worker.lease_s: expected float > 0.0",
            (
                "hongyan.toml:8: alerts.secret: a secret must not be in the file; write "
                f'secret_file = "/path", or set HONGYAN_ALERTS__SECRET{TRY}'
            ),
            ("HONGYAN_DATABASE_URL: there is no such setting; did you mean HONGYAN_DATABASE__URL?"),
        ],
    ),
    (
        "many that only a worker's start shows",
        {
            "hongyan.toml": HOOK
            + ("ca_file = 'nowhere.pem'\n[worker]\nlanes = ['fax.*']\nhealth_address = 'h'"),
            "policy.toml": "[lanes.'webhook.notice']\naccounts = ['v']\n[defaults]\nthreads = 0",
        },
        {},
        WORKER,
        2,
        [
            (
                "hongyan.toml:9: worker.health_address: 'h': write HOST:PORT, as "
                "127.0.0.1:9464 or [::1]:9464"
            ),
            (
                "hongyan.toml:8: worker.lanes: no lane matches 'fax.*': write CHANNEL.KIND "
                f"with * and ?, where channel is one of {CHANNELS} and kind one of "
                "verification, notice, marketing"
            ),
            (
                "hongyan.toml:6: accounts.w.ca_file: nowhere.pem: no such file; give a PEM "
                "file, or leave it out"
            ),
            (
                "policy.toml:2: lanes.\"webhook.notice\".accounts: account 'v' is not in "
                "hongyan.toml; add [accounts.NAME] there"
            ),
            "policy.toml:4: defaults.threads: expected int >= 1, got 0",
        ],
    ),
    (
        "two faulty accounts",
        {
            "hongyan.toml": (
                "[accounts.a]\nprovider = 'fax'\n[accounts.b]\nprovider = 'webhook'\nendpoint = 'x'"
            )
        },
        {},
        ACCOUNTS,
        2,
        [
            (f"hongyan.toml:2: accounts.a.provider: unknown provider 'fax'; known are {PROVIDERS}"),
            ("hongyan.toml:5: accounts.b.endpoint: must be a full http:// or https:// URL"),
        ],
    ),
]
"""Name, files, variables, command, exit code, and what it says."""


def test_there_are_enough_of_them() -> None:
    assert len(ROWS) >= 80
    assert len({row[0] for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize(
    ("files", "environ", "command", "code", "expected"),
    [row[1:] for row in ROWS],
    ids=[row[0] for row in ROWS],
)
def test_a_wrong_configuration_is_told_in_a_sentence_with_its_place(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: dict[str, str],
    environ: dict[str, str],
    command: tuple[str, ...],
    code: int,
    expected: list[str],
) -> None:
    if command is RECOVERY:
        said(monkeypatch, *UPGRADE)
    for name, text in files.items():
        (folder / name).write_text(text)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("COLUMNS", "500")
    found, text = said(monkeypatch, *command)
    lines = text.strip().split("\n")
    if code == 1:
        assert lines.pop().endswith("no worker starts with it")
    assert (found, [line.removeprefix("error: ") for line in lines]) == (code, expected)
    assert "geheim" not in text
