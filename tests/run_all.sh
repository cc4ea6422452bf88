#!/usr/bin/env bash
# Every test, in two runs beside each other: Playwright keeps an event loop in its process (decision 287).
# The browser's output follows the others'. Arguments go to both. Who names a stack (HONGYAN_STACK_DIR) has them
# run on that; else they have one of their own.
set -uo pipefail
cd "$(dirname "$0")/.."
. tests/own_stack.sh

PYTHON=.venv/bin/python

BROWSER=.pytest_cache/browser # each run lists its own failures
LISTS=(.pytest_cache/v/cache/lastfailed $BROWSER/v/cache/lastfailed)

browser= own=
finish() {
    local code=$?
    [ -z "$browser" ] || kill "$browser" 2>/dev/null || true
    [ -z "$own" ] || end_own_stack $code
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

if [ -n "${HONGYAN_STACK_DIR:-}" ]; then
    "$PYTHON" -m deploy.local up
else
    own=1
    own_stack "$PWD/.stack-tests"
fi || [ -z "${HONGYAN_REQUIRE_STACK:-}" ] || exit 1

mkdir -p $BROWSER
.venv/bin/pytest -n 0 -o cache_dir=$BROWSER tests/browser "$@" >$BROWSER/log 2>&1 &
browser=$!

# More processes than cores, since most tests wait most of the time. One collects all tests, and each of the
# others is a fork of it: in a fresh clone each would compile all of them, too (decisions 279 and 298).
others=0
.venv/bin/python -m tests.prefork "${PROCESSES:-6}" --dist loadgroup --durations 15 --ignore tests/browser "$@" \
    || others=$?

pages=0
wait $browser || pages=$?
browser=
cat $BROWSER/log

# 1: tests failed, and are listed. Any other: pytest itself ended, and what is listed is not all.
if [ $others -gt 1 ] || [ $pages -gt 1 ]; then
    rm -f "${LISTS[@]}"
fi
exit $((others > pages ? others : pages))
