#!/usr/bin/env bash
# Every test, in two runs beside each other: Playwright keeps an event loop in its process (decision 287).
# The browser's output follows the others'. Arguments go to both.
set -uo pipefail
cd "$(dirname "$0")/.."

BROWSER=.pytest_cache/browser # each run lists its own failures
LISTS=(.pytest_cache/v/cache/lastfailed $BROWSER/v/cache/lastfailed)

browser=
finish() {
    [ -z "$browser" ] || kill "$browser" 2>/dev/null || true
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

mkdir -p $BROWSER
compiled=$(ls -d tests/admin/__pycache__ 2>/dev/null || :)
.venv/bin/pytest -n 0 -o cache_dir=$BROWSER tests/browser "$@" >$BROWSER/log 2>&1 &
browser=$!

# A fresh clone's tests are compiled by one process: each of six would compile all of them (decision 279).
[ -n "$compiled" ] || .venv/bin/pytest --collect-only -qq -n 0 --ignore tests/browser >/dev/null || :

# More processes than cores, since most tests wait most of the time.
others=0
.venv/bin/pytest -n "${PROCESSES:-6}" --dist loadgroup --durations 15 --ignore tests/browser "$@" || others=$?

pages=0
wait $browser || pages=$?
browser=
cat $BROWSER/log

# 1: tests failed, and are listed. Any other: pytest itself ended, and what is listed is not all.
if [ $others -gt 1 ] || [ $pages -gt 1 ]; then
    rm -f "${LISTS[@]}"
fi
exit $((others > pages ? others : pages))
