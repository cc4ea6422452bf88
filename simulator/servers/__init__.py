"""The simulator's listeners: HTTP, HTTP/2, TLS, SMTP."""
