"""Options and output of `hongyan campaign`."""
