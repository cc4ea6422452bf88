"""One adapter a provider, without I/O; the engine, the transports, the judging of answers."""
