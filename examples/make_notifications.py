"""Makes examples/notifications.jsonl: what a shop and a bank send in a few minutes, the same every time.

    python examples/make_notifications.py [LINES] > examples/notifications.jsonl

`id` and `created_at` are left out: `hongyan send --file` fills them in, so that nothing is stale.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from typing import Any

SEED = 20_261_121
LINES = 3_000
KINDS = {"verification": 0.30, "notice": 0.50, "marketing": 0.20}

SURNAMES = "王李张刘陈杨黄赵吴周徐孙马朱胡郭何林高罗"
GIVEN = "伟芳娜敏静丽强磊军洋勇艳杰娟涛明超霞平刚桂英华玉兰"
NAMES = ["Alice", "Ben", "Chloe", "Daniel", "Emma", "Felix", "Grace", "Henry", "Ivy", "Jack"]
CITIES = ["上海", "杭州", "深圳", "成都", "武汉", "西安", "Singapore", "Berlin", "Toronto"]
CARRIERS = ["顺丰速运", "中通快递", "京东物流", "圆通速递", "DHL", "UPS"]
GOODS = ["机械键盘", "羊毛围巾", "龙井茶 250g", "跑鞋", "Espresso machine", "Desk lamp", "蓝牙耳机"]
CARDS = ["招商银行", "工商银行", "中国银行", "HSBC", "Standard Chartered"]

Body = dict[str, Any]


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else LINES
    maker = Maker(random.Random(SEED))
    for number in range(count):
        print(json.dumps(maker.notification(number), ensure_ascii=False))


class Maker:
    """Draws one notification after the other from one seeded source."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw

    def notification(self, number: int) -> Body:
        kind = self.draw.choices(list(KINDS), weights=list(KINDS.values()))[0]
        chinese = self.draw.random() < 0.7
        biz_id, content = _MAKERS[kind](self, number, chinese)
        line: Body = {
            "biz_id": biz_id,
            "channel": "webhook",
            "kind": kind,
            "receivers": self.receivers(kind),
            "content": content,
            "attributes": {"source": content["scene"], "lang": "zh-CN" if chinese else "en"},
        }
        if kind == "notice" and self.draw.random() < 0.25:
            line["ordering_key"] = biz_id  # steps of one order keep their order
        if kind == "verification":
            line["ttl_ms"] = 300_000
        return line

    def receivers(self, kind: str) -> list[str]:
        many = kind != "verification" and self.draw.random() < 0.08
        count = self.draw.choice([2, 3]) if many else 1
        return [f"user-{number}" for number in self.draw.sample(range(10_000, 99_999), count)]

    def person(self, chinese: bool) -> str:
        if not chinese:
            return self.draw.choice(NAMES)
        return self.draw.choice(SURNAMES) + "".join(
            self.draw.sample(GIVEN, self.draw.choice([1, 2]))
        )

    def verification(self, number: int, chinese: bool) -> tuple[str, Body]:
        code = f"{self.draw.randrange(1_000_000):06d}"
        scene = self.draw.choice(["login", "payment", "password", "new device"])
        text = (
            f"【鸿雁】验证码 {code}，5 分钟内有效。如非本人操作，请忽略本消息。"
            if chinese
            else f"[Hongyan] Your code is {code}. It is valid for 5 minutes. Never share it."
        )
        return f"auth-{number:06d}", {"scene": scene, "code": code, "text": text}

    def notice(self, number: int, chinese: bool) -> tuple[str, Body]:
        step = self.draw.choice([self.shipped, self.paid, self.refunded, self.statement])
        return step(chinese)

    def order(self) -> str:
        return f"order-{self.draw.randrange(100_000, 100_900)}"

    def shipped(self, chinese: bool) -> tuple[str, Body]:
        order, carrier = self.order(), self.draw.choice(CARRIERS)
        parcel = f"SF{self.draw.randrange(10**12):012d}"
        text = (
            f"{self.person(True)}您好，您的订单 {order} 已由{carrier}发出，运单号 {parcel}。"
            if chinese
            else f"Hi {self.person(False)}, order {order} is on its way with {carrier} ({parcel})."
        )
        city = self.draw.choice(CITIES)
        return order, {
            "scene": "shipped",
            "carrier": carrier,
            "parcel": parcel,
            "to": city,
            "text": text,
        }

    def paid(self, chinese: bool) -> tuple[str, Body]:
        order, amount = self.order(), self.amount()
        text = (
            f"您的订单 {order} 已支付成功，金额 ¥{amount}，商品：{self.draw.choice(GOODS)}。"
            if chinese
            else f"We received {amount} CNY for order {order} ({self.draw.choice(GOODS)}). Thank you!"
        )
        return order, {"scene": "paid", "amount": amount, "currency": "CNY", "text": text}

    def refunded(self, chinese: bool) -> tuple[str, Body]:
        order, amount = self.order(), self.amount()
        text = (
            f"订单 {order} 的退款 ¥{amount} 已原路退回，预计 1–3 个工作日到账。"
            if chinese
            else f"Your refund of {amount} CNY for order {order} arrives within 3 business days."
        )
        return order, {"scene": "refunded", "amount": amount, "currency": "CNY", "text": text}

    def statement(self, chinese: bool) -> tuple[str, Body]:
        card, amount = f"{self.draw.randrange(10_000):04d}", self.amount()
        bank = self.draw.choice(CARDS)
        text = (
            f"您尾号 {card} 的{bank}卡本期账单 ¥{amount}，最后还款日 12 月 8 日。"
            if chinese
            else f"Your {bank} card ending {card} has a statement of {amount} CNY, due 8 December."
        )
        return f"bill-{card}-202611", {"scene": "statement", "amount": amount, "text": text}

    def marketing(self, number: int, chinese: bool) -> tuple[str, Body]:
        campaign, goods = (
            self.draw.choice(["winter-sale", "members", "restock"]),
            self.draw.choice(GOODS),
        )
        off = self.draw.choice([10, 15, 20, 30])
        text = (
            f"【会员专享】{goods}立减 {off}%，仅限今日 24 点前。拒收请回复 R"
            if chinese
            else f"Members only: {off}% off {goods} until midnight. Reply STOP to opt out."
        )
        return f"{campaign}-{number:06d}", {"scene": campaign, "off": off, "text": text}

    def amount(self) -> str:
        return f"{self.draw.randrange(900, 500_000) / 100:,.2f}"


_MAKERS: dict[str, Callable[[Maker, int, bool], tuple[str, Body]]] = {
    "verification": Maker.verification,
    "notice": Maker.notice,
    "marketing": Maker.marketing,
}

if __name__ == "__main__":
    main()
