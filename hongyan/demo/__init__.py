"""`hongyan demo`: the whole platform on one machine without a server, with a worker killed midway."""
