"""One process of a fleet that sends with a token: run by test_token_store, driven over stdin.

    python -m tests.channels.token_racer '{"endpoint": …, "database": …, "redis": …, "threads": 4}'

For each line it reads, every thread sends one message at the same moment; then it prints one line of JSON,
the outcomes by name.
"""

import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from time import time

from backends.logs import configure
from backends.settings import DatabaseSettings, RedisSettings, Settings
from channels.channel import Account, Call
from channels.engine import Engine
from channels.http_client.transport import Transport
from channels.providers.wecom.app import WecomChannel, WecomOptions
from channels.secret import Secret
from channels.tokens.shared import open_tokens
from message.delivery import deliveries_of
from message.envelope import Notification

CALL_S = 30.0
"""Eight processes on a busy machine wait for each other; nothing here depends on a call ending sooner."""


def main() -> None:
    told = json.loads(sys.argv[1])
    settings = Settings(
        database=DatabaseSettings(url=told["database"]), redis=RedisSettings(url=told["redis"])
    )
    configure(settings.log, quiet=True)
    transport = Transport()
    engine = Engine(transport, open_tokens(settings, transport))
    options = WecomOptions(
        corpid="simulator-id", corpsecret=Secret("simulator-secret"), agentid=1000002
    )
    account = Account("app", "wecom", told["endpoint"], options)
    channel = WecomChannel()
    start = threading.Barrier(told["threads"])

    def send(number: int, round_: int) -> str:
        notification = Notification(
            id=f"{told['name']}-{number}-{round_}",
            channel="wecom",
            kind="notice",
            receivers=[f"member-{told['name']}-{number}"],
            content={"text": "早上好"},
            created_at=1,
        )
        one = deliveries_of(notification, b"", expires_at=int(time() * 1_000) + 60_000)
        start.wait()
        (outcome,) = engine.send(channel, Call(account, one), CALL_S)
        return f"{type(outcome).__name__} {getattr(outcome, 'detail', '')}".strip()

    print("ready", flush=True)
    with ThreadPoolExecutor(told["threads"]) as threads:
        for round_, _line in enumerate(sys.stdin):
            outcomes = list(threads.map(send, range(told["threads"]), [round_] * told["threads"]))
            print(json.dumps(outcomes, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
