"""`/`: lanes, alerts and processes as they are now, and figures over a range of time.

live_lanes  the live part: one board for all watchers
ranges      the ranges of time, one board each, and a person's own range
figures     what a person sees of a range: lanes, accounts, slots
charts      the figures as charts
page        the handlers
"""
