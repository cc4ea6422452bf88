"""`/campaigns`: crowd files and their runs, which `hongyan campaign run` sends.

listing    the list
uploads    uploaded crowd files, kept in the configured folder
new        the form of a new campaign
campaign   one campaign: progress, runs, bad rows
orders     a person's orders about a campaign
"""
