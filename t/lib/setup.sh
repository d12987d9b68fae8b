#!/usr/bin/env bash
# setup.sh demo|test COMMAND...: makes this machine able to build pgscale (demo) and also to test it (test), then runs
# COMMAND... PG_CONFIG=<the pg_config to use>.
#
# A PG_CONFIG from the caller is used as it is and no server is installed; otherwise it is the newest installed server of
# 15 to 19, otherwise the one that this Debian release carries (PG_MAJOR=15 narrows both). What is missing comes from the
# machine's own apt; where that cannot be, the missing things are named. No database cluster is created or touched.
#
# Server headers: Debian's postgresql-server-dev-N depends on clang and a gigabyte of LLVM, which pgscale does not need. So
# its package is only unpacked into build/, in exactly the installed server's version, and a pg_config there answers with
# that folder.
set -euo pipefail
cd "$(dirname "$0")/../.."
mode=$1
shift
majors=${PG_MAJOR:-19 18 17 16 15}
log=build/setup.log
mkdir -p build
: >"$log"

die() { printf 'set-up: %s\n' "$@" >&2; exit 1; }
root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

# step TEXT COMMAND...: one line with the time it took; the command's own words only when it fails
step() {
    local text=$1 since=$SECONDS
    shift
    printf '%s ... ' "$text" >&2
    if "$@" >>"$log" 2>&1; then
        printf '%d s\n' $((SECONDS - since)) >&2
    else
        printf 'failed\n' >&2
        tail -n 30 "$log" >&2
        die "$text failed"
    fi
}

# have_apt MISSING: ends with a clear word where nothing can be installed
have_apt() {
    if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
        die "missing here: $1" "this is not a Debian system: install that by hand, set PG_CONFIG if needed, and try again"
    fi
}
may_be_root() {
    [ "$(id -u)" != 0 ] || return 0
    command -v sudo >/dev/null || die "missing here: $1" "run this as root, or install sudo"
    sudo -v || die "missing here: $1" "that cannot be installed without root"
}
# the index is read at most once, and only when something has to come from it
update() {
    [ -z "${updated-}" ] || return 0
    step "reading the package index" root apt-get -qq update
    updated=1
}
apt_install() {
    have_apt "$*"
    may_be_root "$*"
    update
    step "installing $*" root env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq -y --no-install-recommends -o Dpkg::Use-Pty=0 install "$@"
}

# Debian's server package starts a cluster of its own unless told not to; this one is for somebody else to decide.
install_server() {
    local conf=/etc/postgresql-common/createcluster.d/pgscale-setup.conf n
    have_apt "a PostgreSQL server, 15 to 19 (or the PG_CONFIG of one)"
    may_be_root "a PostgreSQL server, 15 to 19 (or the PG_CONFIG of one)"
    update
    for n in $majors; do
        apt-cache show "postgresql-$n" >/dev/null 2>&1 && break
        [ "$n" != "${majors##* }" ] || die "this release has none of the servers: $majors" "set PG_CONFIG"
    done
    root mkdir -p "${conf%/*}"
    # shellcheck disable=SC2064  # expanded now: $conf is local
    trap "root rm -f '$conf'; root rmdir --ignore-fail-on-non-empty '${conf%/*}'" EXIT
    echo "create_main_cluster = false" | root tee "$conf" >/dev/null
    apt_install "postgresql-$n" "$@"
    root rm -f "$conf"
    root rmdir --ignore-fail-on-non-empty "${conf%/*}"
    trap - EXIT
    pg_config=/usr/lib/postgresql/$n/bin/pg_config
}

# unpack PACKAGE FOLDER [VERSION]: a Debian package's files, without installing it; needs no root unless the index is stale
unpack() {
    local package=$1 folder=$2 version=${3-} since=$SECONDS
    have_apt "$package"
    rm -rf "$folder" build/download
    mkdir -p "$folder" build/download
    download() { (cd build/download && apt-get -qq download "$1") >>"$log" 2>&1; }
    if ! download "$package${version:+=$version}"; then
        may_be_root "$package"
        update
        if ! download "$package${version:+=$version}"; then
            [ -z "$version" ] || printf 'set-up: %s %s is no longer offered; taking the newest\n' "$package" "$version" >&2
            download "$package" || die "cannot download $package: see $log"
        fi
    fi
    dpkg -x build/download/"$package"_*.deb "$folder"
    rm -rf build/download
    printf 'unpacking %s ... %d s\n' "$package" $((SECONDS - since)) >&2
}

# usable PG_CONFIG MAJORS: a pg_config is of use only with its server; /usr/bin/pg_config may belong to a client library.
usable() {
    local n
    n=$("$1" --version 2>/dev/null | grep -oE '[0-9]+' | head -n 1) || return 1
    case " $2 " in *" $n "*) [ -x "$("$1" --bindir)/postgres" ] ;; *) false ;; esac
}

find_server() {
    local n c
    for n in $majors; do
        for c in "$(command -v pg_config || true)" "/usr/lib/postgresql/$n/bin/pg_config" \
            "/usr/pgsql-$n/bin/pg_config" /usr/local/pgsql/bin/pg_config; do
            if usable "$c" "$n"; then
                pg_config=$c
                return
            fi
        done
    done
    return 1
}

# Sets pg_config to one whose headers are there.
headers() {
    local bindir major dev version
    [ ! -e "$("$pg_config" --includedir-server)/postgres.h" ] || return 0
    bindir=$("$pg_config" --bindir)
    major=$(grep -oE '^/usr/lib/postgresql/[0-9]+' <<<"$bindir" | grep -oE '[0-9]+$') ||
        die "missing here: the server headers of $pg_config" "install its development package, or set PG_CONFIG to another"
    dev=$PWD/build/postgresql-$major
    version=$(dpkg-query -W -f '${Version}' "postgresql-$major" 2>/dev/null) || version=
    if [ ! -x "$dev/pg_config" ] || [ "$(cat "$dev/version")" != "$version" ]; then
        unpack "postgresql-server-dev-$major" "$dev" "$version"
        echo "$version" >"$dev/version"
        cat >"$dev/pg_config" <<EOF
#!/bin/sh
# $bindir/pg_config, but with the server headers of this folder
case "\$*" in
--includedir-server | --pkgincludedir) printf %s "$dev"; exec $bindir/pg_config "\$@" ;;
*) exec $bindir/pg_config "\$@" ;;
esac
EOF
        chmod +x "$dev/pg_config"
    fi
    pg_config=$dev/pg_config
}

# PostgreSQL::Test: this server's own, else any other one's here (they serve other majors too), else unpacked. t/lib/run.sh
# looks at the same places.
test_modules() {
    local dir n
    for dir in "$(dirname "$("$pg_config" --pgxs)")"/../test/perl /usr/lib/postgresql/*/lib/pgxs/src/test/perl build/perl; do
        [ ! -e "$dir/PostgreSQL/Test/Cluster.pm" ] || return 0
    done
    have_apt "the Perl modules PostgreSQL::Test (a server configured with --enable-tap-tests installs them)"
    for n in $majors; do
        if apt-cache show "postgresql-client-$n" >/dev/null 2>&1; then
            unpack "postgresql-client-$n" build/client
            rm -rf build/perl
            mv "build/client/usr/lib/postgresql/$n/lib/pgxs/src/test/perl" build/perl
            rm -rf build/client
            return
        fi
    done
    die "no postgresql-client package offers the Perl modules PostgreSQL::Test"
}

tools=()
echo '#include <stdio.h>' | gcc -E - >/dev/null 2>&1 || tools+=(gcc libc6-dev)
command -v make >/dev/null || tools+=(make)
if [ "$mode" = test ]; then
    command -v prove >/dev/null || tools+=(perl)
    perl -MIPC::Run -e 1 2>/dev/null || tools+=(libipc-run-perl)
fi

if [ -n "${PG_CONFIG-}" ]; then
    pg_config=$(command -v "$PG_CONFIG") || die "PG_CONFIG=$PG_CONFIG: no such program"
    usable "$pg_config" "$majors" || die "PG_CONFIG=$PG_CONFIG is not the pg_config of a PostgreSQL ${majors// /, } with its server"
    [ ${#tools[@]} = 0 ] || apt_install "${tools[@]}"
elif find_server; then
    [ ${#tools[@]} = 0 ] || apt_install "${tools[@]}"
else
    install_server "${tools[@]}"
fi
# pgscale does without it, and then has no NUMA
if [ "${NUMA-}" != no ] && ! echo '#include <numa.h>' | gcc -E - >/dev/null 2>&1 && command -v apt-get >/dev/null &&
    { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }; then
    (apt_install libnuma-dev) || echo 'set-up: going on without libnuma' >&2
fi
# the library is linked with the client library
echo 'int main(void) {return PQlibVersion();}' | gcc -include libpq-fe.h -I"$("$pg_config" --includedir)" -x c - -o /dev/null \
    -L"$("$pg_config" --libdir)" -lpq 2>/dev/null || apt_install libpq-dev
headers
[ "$mode" != test ] || test_modules

printf 'using %s\n' "$("$pg_config" --version)" >&2
exec "$@" "PG_CONFIG=$pg_config"
