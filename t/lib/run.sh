#!/usr/bin/env bash
# run.sh: the second half of `make test`: runs the SQL tests and the TAP tests against the installed library and ends with
# "N passed, N failed". From the environment: PG_CONFIG, REGRESS and TAP (which tests), MAKE, JOBS (TAP tests at a time), AGAIN
# (if no more than so many tests failed, and nothing crashed, they are run once more: the TAP tests alone, the SQL tests all).
#
# The tests run in a copy of the tree under a temporary folder: a server refuses to run as root, so root hands the copy to
# an ordinary user, and nobody else's folder has to be readable or writable for that user. What is left of a failed run is
# kept in build/failed.
#
# A count is an SQL test or a TAP assertion; a test program that dies counts as one failure.
set -euo pipefail
cd "$(dirname "$0")/../.."
tree=$PWD
# the real pg_config: the set-up's own may lie where the ordinary user cannot read; its headers are copied
bindir=$("$PG_CONFIG" --bindir)
pgxs=$("$PG_CONFIG" --pgxs)
testdir=${pgxs%/makefiles/pgxs.mk}/test
slower=${PGSCALE_TEST_SLOWER:-1} # than an ordinary build: one with sanitizers
passed=0
failed=0
crashed='TRAP:|PANIC:|terminated by signal (4|6|7|8|11)\b'

work=$(mktemp -d "${TMPDIR:-/tmp}/pgscale-test.XXXXXX")
child=''
tests=()
finish() {
    local f pid
    for pid in $child "${tests[@]}"; do { kill "$pid" && wait "$pid"; } 2>/dev/null || true; done
    # servers that outlived an interrupted or crashed test; the folder's name makes sure that they are ours
    while IFS= read -r f; do
        pid=$(head -n 1 "$f")
        case "$(readlink "/proc/$pid/cwd" || true)" in "$work"/*) kill -QUIT "$pid" || true ;; esac
        while [ -d "/proc/$pid" ] && [ "$SECONDS" -lt "${give_up:=$((SECONDS + 10))}" ]; do sleep 0.1; done
    done < <(find "$work" -name postmaster.pid)
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP

mkdir "$work/tree" "$work/tmp" "$work/perl" "$work/bin" "$work/tree/src"
cp -r Makefile README.md doc pgscale.control sql expected t "$work/tree/"
# for what the tests compile, and for the Makefile
(cd src && find . \( -name '*.[ch]' -o -name '*.sql' \) -exec cp --parents {} "$work/tree/src/" \;)
headers=$("$PG_CONFIG" --includedir-server)
[ ! -e "$headers/postgres.h" ] || cp -rL "$headers" "$work/headers"
export PGSCALE_SERVER_HEADERS=$work/headers
for dir in "$testdir/perl" /usr/lib/postgresql/*/lib/pgxs/src/test/perl build/perl; do
    [ -e "$work/perl/PostgreSQL" ] || [ ! -e "$dir/PostgreSQL/Test/Cluster.pm" ] || cp -r "$dir/PostgreSQL" "$work/perl/"
done
# initdb takes a core a second or more, and most tests want nothing special of it: so it is run once, and theirs are copies.
# PostgreSQL::Test::Cluster makes them by itself since 17; before, it finds this initdb.
cat >"$work/bin/initdb" <<EOF
#!/bin/sh
if [ "\$#" = 5 ] && [ "\$1 \$3 \$4 \$5" = '-D -A trust -N' ] && [ -d '$work/template' ] && [ ! -e "\$2" ]; then
    exec cp -RPp '$work/template' "\$2"
fi
exec '$bindir/initdb' "\$@"
EOF
chmod +x "$work/bin/initdb"
user=()
if [ "$(id -u)" = 0 ]; then
    # nobody, not postgres: that one could reach the machine's real clusters
    user=(setpriv --reuid nobody --regid "$(id -g nobody)" --clear-groups)
    chown -R nobody "$work"
fi

# run SECONDS OUTPUT COMMAND...: as the ordinary user; sets status. In the background, since a shell that waits for a
# program in the foreground would not act on a signal before that program's end.
run() {
    local limit=$1 out=$2
    shift 2
    status=0
    (cd "$work/tree" && exec env -u MAKEFLAGS -u MAKELEVEL HOME="$work" TMPDIR="$work/tmp" PATH="$work/bin:$bindir:$PATH" \
        INITDB_TEMPLATE="$work/template" LANG=C.UTF-8 LC_ALL=C.UTF-8 "${user[@]}" timeout -k 10 "$limit" "$@" >"$out" 2>&1) &
    child=$!
    wait "$child" || status=$?
    child=
}

count() { grep -cE "$1" "$2" || true; }

# keep NAME FILE...: what there is of the files goes to build/failed/NAME
keep() {
    local to=build/failed/$1
    shift
    mkdir -p "$to"
    cp -r "$@" "$to/" 2>/dev/null || true
}
rm -rf build/failed

# ends_alone: a subshell's own end, as that of finish
ends_alone() { trap '[ -z "$child" ] || { kill "$child" && wait "$child"; } 2>/dev/null; exit 130' INT TERM HUP; }

# sql: runs the SQL tests, says how it went, and leaves "passed failed" in $work/sql.counts
sql() {
    local out=$work/tree/build/regress said=$work/regress.out ok bad
    ends_alone
    installcheck() { run $((900 * slower)) "$said" "$MAKE" --no-print-directory -s installcheck "PG_CONFIG=$bindir/pg_config" "REGRESS=$REGRESS"; }
    installcheck
    # as with the others below
    if [ "$status" != 0 ] && [ "${AGAIN:-0}" -gt 0 ] && [ -e "$out/log/postmaster.log" ] && ! grep -qE "$crashed" "$out/log/postmaster.log" &&
        [ "$(count '^not ok |\.\.\. FAILED' "$said")" -le "$AGAIN" ]; then
        cat "$said" "$out/regression.diffs" 2>/dev/null || true
        installcheck
        [ "$status" != 0 ] || echo "UNSTABLE: an SQL test failed at first and passed at the second run of all"
    fi
    echo "# SQL tests"
    grep -E '^(ok|not ok|test) |\.\.\. ' "$said" || true
    # "test x ... ok" until 15, "ok 1 - x" since 16
    ok=$(count '^ok |^(test| +)[^.]*\.\.\. ok ' "$said")
    bad=$(count '^not ok |\.\.\. FAILED' "$said")
    if [ "$status" != 0 ]; then
        [ "$bad" != 0 ] || bad=1
        cat "$said" "$out/regression.diffs" 2>/dev/null || true
        tail -n 60 "$out/log/postmaster.log" 2>/dev/null || cat "$out/log/initdb.log" 2>/dev/null || true
        keep sql "$out/regression.diffs" "$out/results" "$out/log" "$said"
    fi
    echo "$ok $bad" >"$work/sql.counts"
}

# tap TEST: runs one, says how it went, and leaves "passed failed" in $work/NAME.counts
tap() {
    local test=$1 name since=$SECONDS ok bad
    name=$(basename "$test" .pl)
    ends_alone
    # the names of the output folders differ: TESTDIR until 15, the other two since 16
    mkdir -p "$work/$name/tmp_check/log"
    [ ${#user[@]} = 0 ] || chown -R nobody "$work/$name"
    run $((600 * slower)) "$work/$name.out" env TESTDIR="$work/$name" TESTDATADIR="$work/$name/tmp_check" \
        TESTLOGDIR="$work/$name/tmp_check/log" PG_REGRESS="$testdir/regress/pg_regress" \
        PG_TEST_TIMEOUT_DEFAULT="${PG_TEST_TIMEOUT_DEFAULT:-$((60 * slower))}" \
        prove --verbose -I "$work/perl" -I t/lib "$test"
    ok=$(($(count '^ok ' "$work/$name.out") - $(count '^ok .*# skip' "$work/$name.out")))
    bad=$(($(count '^not ok ' "$work/$name.out") - $(count '^not ok .*# TODO' "$work/$name.out")))
    grep -iE '# skip' "$work/$name.out" || true
    if [ "$status" != 0 ]; then
        [ "$bad" != 0 ] || bad=1
        cat "$work/$name.out"
        tail -n 60 "$work/$name"/tmp_check/log/* || true
        keep "$name" "$work/$name/tmp_check/log/." "$work/$name.out"
    fi
    echo "$ok $bad" >"$work/$name.counts"
    echo "# $test: $ok ok, $bad not ok, $((SECONDS - since)) s"
}

# Most of their time they wait for something to happen, so more of them run at a time than there are processors.
at_once=${JOBS:-$(($(nproc) * 4))}
# Those that take longest first, so that none of them is left alone at the end: those that say so, then the largest files.
# shellcheck disable=SC2086  # words
mapfile -t scheduled < <([ -z "$TAP" ] || { grep -lx '# Waits for long.' $TAP || true; ls -S $TAP; } | awk '!seen[$0]++')
[ -z "$TAP" ] || [ -e "$work/perl/PostgreSQL" ] || { echo "PostgreSQL::Test is missing: run make test"; exit 1; }
if [ -n "$TAP" ]; then
    run $((120 * slower)) "$work/initdb.out" initdb -D "$work/template" -A trust -N
    [ "$status" = 0 ] || { cat "$work/initdb.out"; exit 1; }
fi
if [ -n "$REGRESS" ]; then
    (sql >"$work/sql.said" 2>&1; cat "$work/sql.said") &
    tests+=($!)
fi
for test in "${scheduled[@]}"; do
    [ ${#tests[@]} -lt "$at_once" ] || wait -n || true
    (tap "$test" >"$work/$(basename "$test").said" 2>&1; cat "$work/$(basename "$test").said") &
    tests+=($!)
done
wait "${tests[@]}" || true

# A test that fails beside the others and passes alone has met something that the machine did to it, most likely; it is
# named, so that somebody finds out. What crashed, or fails alone, has failed, and so have all if they are many.
if [ "${AGAIN:-0}" -gt 0 ]; then
    failures=()
    for test in $TAP; do
        name=$(basename "$test" .pl)
        read -r ok bad <"$work/$name.counts" || bad=1
        [ "$bad" = 0 ] || failures+=("$test")
    done
    for test in "${failures[@]}"; do
        name=$(basename "$test" .pl)
        [ ${#failures[@]} -le "$AGAIN" ] || break
        ! grep -qE "$crashed" "$work/$name"/tmp_check/log/* || continue
        mv "$work/$name" "$work/$name-first"
        mv "$work/$name.out" "$work/$name-first.out"
        tap "$test"
        read -r ok bad <"$work/$name.counts" || bad=1
        [ "$bad" != 0 ] || echo "UNSTABLE: $test failed beside the others and passed alone"
    done
fi

for test in ${REGRESS:+sql} $TAP; do
    read -r ok bad <"$work/$(basename "$test" .pl).counts" || { ok=0 bad=1; }
    passed=$((passed + ok)) failed=$((failed + bad))
done

# what the test has written, see pgscale_reference.pl
[ -z "${PGSCALE_WRITE_REFERENCE-}" ] || cp "$work/tree/doc/reference.md" doc/
[ ! -e build/failed ] || echo "# logs of what failed: $tree/build/failed"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
