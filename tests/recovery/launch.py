"""Runs `hongyan recovery` with the flags given."""

import sys

from hongyan.cli import main

if __name__ == "__main__":
    sys.argv = ["hongyan", "recovery", *sys.argv[1:]]
    main()
