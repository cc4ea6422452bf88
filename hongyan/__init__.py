"""The program `hongyan`: every command of the platform, and nothing that other packages import."""
