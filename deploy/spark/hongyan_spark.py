"""The program that spark-submit starts: `hongyan spark` with the arguments behind it (submit.sh)."""

import sys

from hongyan.program import main

if __name__ == "__main__":
    sys.argv = ["hongyan", "spark", *sys.argv[1:]]
    main()
