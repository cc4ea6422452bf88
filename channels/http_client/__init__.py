"""HTTP/1.1: request, wire format, connection, exchange, the thread that reads answers, the transport."""
