from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNKNOWN: _ClassVar[State]
    COMMIT: _ClassVar[State]
    ROLLBACK: _ClassVar[State]
UNKNOWN: State
COMMIT: State
ROLLBACK: State

class Question(_message.Message):
    __slots__ = ("biz_type", "biz_id", "tx_id")
    BIZ_TYPE_FIELD_NUMBER: _ClassVar[int]
    BIZ_ID_FIELD_NUMBER: _ClassVar[int]
    TX_ID_FIELD_NUMBER: _ClassVar[int]
    biz_type: str
    biz_id: str
    tx_id: str
    def __init__(self, biz_type: _Optional[str] = ..., biz_id: _Optional[str] = ..., tx_id: _Optional[str] = ...) -> None: ...

class Reply(_message.Message):
    __slots__ = ("state", "biz_id", "detail", "fenced")
    STATE_FIELD_NUMBER: _ClassVar[int]
    BIZ_ID_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    FENCED_FIELD_NUMBER: _ClassVar[int]
    state: State
    biz_id: str
    detail: str
    fenced: bool
    def __init__(self, state: _Optional[_Union[State, str]] = ..., biz_id: _Optional[str] = ..., detail: _Optional[str] = ..., fenced: _Optional[bool] = ...) -> None: ...
