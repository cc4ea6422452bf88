"""Transactional messages, the business's side: docs/lookback-business.md.

transactions       prepare, commit, rollback
identity           the three names of a transaction
barrier            the fenced check: one row in the business's database
transaction_state  the answer of a check
signature          the signature of a check's question
check_handler      the check over HTTP
check.proto        the check over gRPC; check_pb2 is made from it
grpc_service       the same for a gRPC server
"""
