"""HTTP/2: frames by `h2`, one connection, its streams, the thread that reads, the transport."""
