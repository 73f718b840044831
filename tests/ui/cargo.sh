#!/usr/bin/env bash
# `cargo` for the suite `ui`. A built library names its files by their paths from the root of the workspace; `trybuild` knows
# whole paths, and leaves out the numbers of their lines.
set -o pipefail
"$MONGOLOCK_UI_CARGO" "$@" | sed -E "s#(-->|:::) mongolock/src/#\1 $MONGOLOCK_UI_WORKSPACE/mongolock/src/#g"
