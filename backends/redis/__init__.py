"""Redis: the client, the guard that ends one outage with one log line, and the scripts of the fleet."""
