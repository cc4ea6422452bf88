# Sourced by what runs every test: a stack of its own for one run, on free ports. One that is up already is
# neither used nor in the way.
#
#   own_stack FOLDER       starts it; exports where it is
#   end_own_stack CODE     stops it by pid, whatever happened; after a failure its logs stay in FOLDER/logs
#
# Its database waits for no disk: tests end processes, never the machine (decision 296). Where there is
# room, it lies in memory: a database is a thousand files, which a disk takes long to find places for (299).

has_room() { # 8 GiB free in /dev/shm, and as much in memory
    local kb=$((8 << 20))
    [ -w /dev/shm ] && [ "$(df --output=avail /dev/shm | tail -n 1)" -gt $kb ] \
        && [ "$(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo)" -gt $kb ]
}

own_stack() {
    KEPT=$1
    unset HONGYAN_STACK_PORT_BASE
    export HONGYAN_STACK_DIR=$KEPT HONGYAN_STACK_FSYNC=off
    if has_room; then
        HONGYAN_STACK_DIR=/dev/shm/hongyan-$(printf %s "$KEPT" | cksum | cut -d ' ' -f 1)
    fi
    "$PYTHON" -m deploy.local up --free-ports
}

end_own_stack() {
    local wipe=--wipe
    if [ "$1" != 0 ] && [ "$HONGYAN_STACK_DIR" = "$KEPT" ]; then
        wipe=
    elif [ "$1" != 0 ]; then
        mkdir -p "$KEPT" && cp -r "$HONGYAN_STACK_DIR/logs" "$KEPT/" || true
    fi
    "$PYTHON" -m deploy.local down $wipe || true
}
