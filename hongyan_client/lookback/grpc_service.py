"""The check over gRPC on the business's side: the generic service `hongyan.lookback.Check`.

    server = grpc.server(ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers((check_service(CheckHandler({"order": barrier.decide}, [SECRET])),))

It needs grpcio and protobuf beside the client.
"""

from __future__ import annotations

from typing import Any, Final

import grpc

from hongyan_client.lookback import check_pb2
from hongyan_client.lookback.check_handler import CheckHandler
from hongyan_client.lookback.errors import BadIdentity, LookupFailed, NotSigned
from hongyan_client.lookback.identity import TransactionRef
from hongyan_client.lookback.transaction_state import StateReply, TransactionState

SERVICE: Final = "hongyan.lookback.Check"
METHOD: Final = f"/{SERVICE}/Ask"
STATES: Final = {
    check_pb2.UNKNOWN: TransactionState.UNKNOWN,
    check_pb2.COMMIT: TransactionState.COMMIT,
    check_pb2.ROLLBACK: TransactionState.ROLLBACK,
}
"""The enum of the wire in our words."""
_ON_THE_WIRE: Final = {ours: theirs for theirs, ours in STATES.items()}


def check_service(handler: CheckHandler) -> grpc.GenericRpcHandler:
    """Returns the service, for `add_generic_rpc_handlers` of a server."""

    def ask(question: check_pb2.Question, context: grpc.ServicerContext) -> check_pb2.Reply:
        ref = TransactionRef(question.biz_type, question.biz_id, question.tx_id)
        headers = {name: str(value) for name, value in _metadata(context)}
        try:
            return to_wire(handler.reply_to(ref, headers))
        except BadIdentity as exc:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(exc))
        except NotSigned as exc:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, str(exc))
        except LookupFailed as exc:
            context.abort(grpc.StatusCode.UNAVAILABLE, str(exc))
        raise AssertionError("abort raises")

    method = grpc.unary_unary_rpc_method_handler(
        ask,
        request_deserializer=check_pb2.Question.FromString,
        response_serializer=check_pb2.Reply.SerializeToString,
    )
    return grpc.method_handlers_generic_handler(SERVICE, {"Ask": method})


def to_wire(reply: StateReply) -> check_pb2.Reply:
    """Returns the reply as gRPC has it."""
    return check_pb2.Reply(
        state=_ON_THE_WIRE[reply.state],
        biz_id=reply.biz_id,
        detail=reply.detail,
        fenced=reply.fenced,
    )


def _metadata(context: grpc.ServicerContext) -> Any:
    return context.invocation_metadata() or ()
