"""The events of a mini-program, signed as those of an Official Account with `wechat_mini.token`."""

from __future__ import annotations

from simulator.receipts.formats.wechat_official import WechatOfficialReceiptFormat
from simulator.receipts.plan import DELIVERED
from simulator.receipts.receipt_format import ReceiptReport


class WechatMiniReceiptFormat(WechatOfficialReceiptFormat):
    """subscribe_msg_sent_event."""

    protocol = "wechat_mini"

    def xml(self, report: ReceiptReport) -> str:
        """The event in the clear."""
        good = report.planned.status == DELIVERED
        status = "success" if good else f"failed:{report.planned.code}"
        return (
            "<xml><ToUserName><![CDATA[gh_simulator]]></ToUserName>"
            f"<FromUserName><![CDATA[{report.record.receiver}]]></FromUserName>"
            f"<CreateTime>{report.at_ms // 1_000}</CreateTime>"
            "<MsgType><![CDATA[event]]></MsgType>"
            "<Event><![CDATA[subscribe_msg_sent_event]]></Event>"
            "<SubscribeMsgSentEvent><List><TemplateId><![CDATA[T]]></TemplateId>"
            f"<MsgID>{report.record.provider_id}</MsgID>"
            f"<ErrorCode>{0 if good else 20_003}</ErrorCode>"
            f"<ErrorStatus><![CDATA[{status}]]></ErrorStatus></List></SubscribeMsgSentEvent></xml>"
        )


FORMATS = {"wechat_mini": WechatMiniReceiptFormat()}
