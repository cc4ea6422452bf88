"""What the simulator listens with: HTTP, HTTP/2, TLS, SMTP."""
