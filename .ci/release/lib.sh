# shellcheck shell=bash
# lib.sh: what release checks share; they source it from the top of the tree.
. .ci/lib.sh

# shellcheck disable=SC2034  # for those who source this
{
    release=$PWD/build/release
    out=$release/$(basename "$0")
    version=$(sed -n 's/^    "version": "\(.*\)",$/\1/p' META.json)
    # that of the extension, which has two numbers
    sql_version=$(sed -n "s/^default_version = '\(.*\)'/\1/p" pgscale.control)
}
mkdir -p "$out"
# Whatever a product says of its time is the time of the commit.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

say() { echo "$*" >&2; }
# fail TEXT, cannot TEXT: ends the check, with the text in the table
fail() { tr '\n' ' ' <<<"$*" && echo && exit 1; }
cannot() { tr '\n' ' ' <<<"$*" && echo && exit 75; }

# committed FOLDER: the last commit's tree, in a repository of its own
committed() { git clone -q --no-hardlinks . "$1"; }

# machine_server: sets PG_CONFIG to that of the machine's own server, which is installed if it is not there, with its headers
machine_server() {
    # shellcheck disable=SC2016  # expanded by the inner shell
    PG_CONFIG=$(.ci/majors 15 . sh -c 'echo "$PG_CONFIG"')
    export PG_CONFIG
}

# trust PROGRAM ARGS...: runs a program of t/trust and ends the check with the last line that it printed
trust() {
    local status=0
    "t/trust/$1" "${@:2}" >"$out/log" 2>&1 || status=$?
    [ "$status" != 75 ] || cannot "$1 cannot be run now: $(tail -n 1 "$out/log")"
    [ "$status" = 0 ] || { tail -n 40 "$out/log" >&2 && fail "$1 failed: see $out/log"; }
    tail -n 1 "$out/log"
}
