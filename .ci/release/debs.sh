# shellcheck shell=bash
# debs.sh: what the checks of the Debian packages share; they source it from the top of the tree.
. .ci/release/lib.sh
. .ci/chroot.sh

# debs_need RELEASE...: the packages of the last commit for these, in build/release; builds those that are missing
debs_need() {
    local release missing=()
    for release; do
        [ "$(cat "build/release/debian/$release/commit" 2>/dev/null)" = "$(git rev-parse HEAD)" ] || missing+=("$release")
    done
    [ ${#missing[@]} = 0 ] || .ci/release/checks/debian "${missing[@]}"
}

# debs_major RELEASE: the major of PostgreSQL that it carries
debs_major() {
    case $1 in
        bookworm) echo 15 ;;
        trixie) echo 17 ;;
        forky) echo 18 ;;
        sid) echo 19 ;;
    esac
}

# debs_fresh ROOT RELEASE: a minimal system of that release, with its package in /packages, where no package creates a cluster
debs_fresh() {
    chroot_fresh "$1" "$2"
    [ "$2" != sid ] || chroot_experimental "$1"
    mkdir -p "$1/packages" "$1/etc/postgresql-common"
    cp build/release/postgresql-"$(debs_major "$2")"-pgscale_*.deb "$1/packages/"
    echo 'create_main_cluster = false' >"$1/etc/postgresql-common/createcluster.conf"
}

# debs_source FOLDER: the source of the last commit there
debs_source() {
    mkdir -p "$1"
    git archive HEAD | tar -C "$1" -xf - --no-same-owner
}

# The rest is called inside.

# debs_ask CLUSTER STATEMENT: its rows, or its error message
debs_ask() { runuser -u postgres -- psql -XAtq --cluster "$1" -c "$2" 2>&1; }

# debs_until CLUSTER SECONDS STATEMENT: waits until it is true
debs_until() {
    for _ in $(seq "$2"0); do
        [ "$(debs_ask "$1" "$3")" != t ] || return 0
        sleep 0.1
    done
    fail "$1: not within $2 s: $3: $(debs_ask "$1" 'TABLE pgscale.health')"
}

# debs_unbroken CLUSTER NAME: no feature is broken, once all have started
debs_unbroken() {
    local broken
    debs_until "$1" 30 "SELECT count(*) = 0 FROM pgscale.health WHERE state = 'starting'"
    broken=$(debs_ask "$1" "SELECT feature, reason FROM pgscale.health WHERE state = 'broken'") || true
    [ -z "$broken" ] || fail "$2: broken: $broken"
    say "ok: $2: nothing is broken"
}
