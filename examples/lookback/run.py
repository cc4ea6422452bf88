"""A shop whose orders are in a database of its own, and that is killed in the middle of them.

    python examples/lookback/run.py

It starts a Kafka of its own, `hongyan lookback` and a shop: `orders` takes 30 orders, `check`
answers the look-back's questions, and this program starts them and judges. Each third order is rolled back.
`orders` kills itself four times: after the prepare, in its transaction, after its commit, before it says
rollback. In the end the topic `shop.paid` has one message for each order that was committed, and none else.
docs/lookback-business.md has the reasons.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from wsgiref.simple_server import WSGIRequestHandler, make_server

import sqlalchemy as sa
from confluent_kafka import Consumer, TopicPartition

from backends.kafka.embedded import PARTITIONS, EmbeddedKafka
from hongyan_client.lookback.barrier import Barrier
from hongyan_client.lookback.check_handler import CheckHandler
from hongyan_client.lookback.transactions import LookBack
from hongyan_client.publisher import Publisher
from hongyan_client.records import Record

SECRET = "a secret of the example"
ORDERS_COUNT, WHOLE_S = 30, 90
TOPIC = "shop.paid"
DEATHS = {5: "prepared", 11: "open", 16: "committed", 21: "rolled back"}
"""The order at which `orders` kills itself, and the place: each once."""
ORDERS = sa.Table("orders", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True))
TOML = """
[kafka]
bootstrap = "{bootstrap}"
[database]
url = "sqlite:///hongyan.db"
[lookback]
health_address = "127.0.0.1:0"
[lookback.checks.shop]
url = "http://127.0.0.1:{port}/"
secret_file = "secret"
[lookback.biz_types.order]
check = "shop"
topics = ["shop.*"]
immunity_s = 1
check_s = 1
"""


def main() -> int:
    """Runs the whole. Returns 0 if every committed order was told once, and no other."""
    if len(sys.argv) > 1:
        return _ROLES[sys.argv[1]](*sys.argv[2:])
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        kafka = stack.enter_context(EmbeddedKafka())
        shop = shop_of(str(folder))
        Barrier(shop).table.create(shop)
        ORDERS.create(shop)
        check = started(stack, [__file__, "check", str(folder)], stdout=subprocess.PIPE)
        assert check.stdout is not None
        port = int(check.stdout.readline())
        (folder / "secret").write_text(SECRET)
        (folder / "hongyan.toml").write_text(TOML.format(bootstrap=kafka.bootstrap, port=port))
        hongyan = [
            "-c",
            "from hongyan.program import main; main()",
            "--config",
            str(folder / "hongyan.toml"),
        ]
        log = stack.enter_context((folder / "lookback.log").open("wb"))
        started(stack, [*hongyan, "db", "upgrade"], stdout=log, stderr=log).wait(WHOLE_S)
        started(stack, [*hongyan, "lookback"], stdout=log, stderr=log)
        while started(stack, [__file__, "orders", str(folder), kafka.bootstrap]).wait(WHOLE_S):
            print("the shop was killed, and starts again")
        return judge(shop, kafka.bootstrap)


def started(stack: ExitStack, arguments: list[str], **streams: object) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen([sys.executable, *arguments], env=environment, **streams)  # type: ignore[call-overload]
    stack.callback(process.wait)
    stack.callback(process.terminate)
    found: subprocess.Popen[bytes] = process
    return found


def shop_of(folder: str) -> sa.Engine:
    """Returns the shop's database; its writers wait for each other."""
    url = f"sqlite:///{Path(folder) / 'shop.db'}"
    return sa.create_engine(url, connect_args={"timeout": 30})


# ---- the shop --------------------------------------------------------------------------------


def orders(folder: str, bootstrap: str) -> int:
    """Takes the orders, from where the last life ended."""
    shop = shop_of(folder)
    barrier, place = Barrier(shop), Path(folder) / "next"
    publisher = Publisher(bootstrap, client_id="shop")
    look_back = LookBack(publisher, "order")
    for number in range(int(place.read_text()) if place.exists() else 0, ORDERS_COUNT):
        place.write_text(str(number + 1))  # an order that dies here is not taken again
        take_order(number, shop, barrier, look_back)
    publisher.close(10)
    return 0


def take_order(number: int, shop: sa.Engine, barrier: Barrier, look_back: LookBack) -> None:
    ref = look_back.prepare(f"order-{number}", Record(TOPIC, None, b"%d" % number))
    die(number, "prepared")
    if number % 3 == 0:
        die(number, "rolled back")
        look_back.rollback(ref)
        return
    with shop.begin() as connection:
        barrier.pass_through(connection, ref)
        connection.execute(ORDERS.insert().values(id=number))
        die(number, "open")
    die(number, "committed")
    look_back.commit(ref)


def die(number: int, place: str) -> None:
    if DEATHS.get(number) == place:
        os.kill(os.getpid(), signal.SIGKILL)


def check(folder: str) -> int:
    """Answers the questions of `hongyan lookback`; prints its port."""
    handler = CheckHandler({"order": Barrier(shop_of(folder)).decide}, [SECRET])
    with make_server("127.0.0.1", 0, handler.wsgi, handler_class=_Quiet) as server:
        print(server.server_port, flush=True)
        server.serve_forever()
    return 0


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
        return


# ---- the judge -------------------------------------------------------------------------------


def judge(shop: sa.Engine, bootstrap: str) -> int:
    """Waits until as many messages are there as committed orders, and a little longer."""
    with shop.begin() as connection:
        committed = sorted(connection.execute(sa.select(ORDERS.c.id)).scalars())
    told = sorted(told_orders(bootstrap, len(committed)))
    print(f"{len(committed)} orders were committed, {len(told)} messages went out")
    for name, some in (
        ("lost", set(committed) - set(told)),
        ("invented", set(told) - set(committed)),
    ):
        if some:
            print(f"{name}: {sorted(some)}")
    return 0 if told == committed else 1


def told_orders(bootstrap: str, wanted: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "judge", "log_level": 0})
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
    found: list[int] = []
    until = time.monotonic() + WHOLE_S / 2
    while time.monotonic() < until:
        message = consumer.poll(0.2)
        if message is None or message.error() is not None:
            continue
        found.append(int(message.value() or b"-1"))
        if len(found) == wanted:
            until = min(until, time.monotonic() + 5)  # none may come behind them
    consumer.close()
    return found


_ROLES: Mapping[str, Callable[..., int]] = {"orders": orders, "check": check}

if __name__ == "__main__":
    sys.exit(main())
