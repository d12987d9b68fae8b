# shellcheck shell=bash
# chroot.sh: folders with a Debian release of their own, for .ci/majors and the checks of .ci/release. They source it after
# lib.sh. The mounts and processes of a chroot live in namespaces of their own: the kernel takes them away with the command,
# however that ends.

# chroot_make ROOT RELEASE [OPTION...]: that release, with the options of debootstrap; no service starts there
chroot_make() {
    local root=$1 release=$2
    shift 2
    ci_need debootstrap || return
    rm -rf --one-file-system "$root"
    # An older debootstrap does not know the names of later releases. The script for sid works for each of them.
    quietly debootstrap --variant=minbase "$@" "$release" "$root" "$(ci_mirror)" /usr/share/debootstrap/scripts/sid ||
        return 1
    # A development release's index expires when the mirror is not the very newest.
    echo 'Acquire::Check-Valid-Until "false";' >"$root/etc/apt/apt.conf.d/90pgscale-ci"
    apt-config dump Acquire | grep -i '::proxy' >>"$root/etc/apt/apt.conf.d/90pgscale-ci" || true
    echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/90pgscale-ci" # a folder that can be made again
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
    chmod +x "$root/usr/sbin/policy-rc.d"
    cp /etc/resolv.conf /etc/hosts "$root/etc/"
}

# chroot_experimental ROOT: packages of 19 are taken from experimental where it has later ones, and nothing else is
chroot_experimental() {
    echo "deb $(ci_mirror) experimental main" >"$1/etc/apt/sources.list.d/experimental.list"
    printf 'Package: %s\nPin: release a=experimental\nPin-Priority: 500\n' \
        'postgresql-19 postgresql-client-19 postgresql-server-dev-19 libpq5 libpq-dev' \
        >"$1/etc/apt/preferences.d/experimental"
}

# chroot_enter ROOT COMMAND...: in that folder's own system, with /proc, /dev and /sys; ROOT is given back clean
chroot_enter() {
    local root=$1 status=0
    shift
    chroot_end_by_signal # again: this may be a subshell, which has no traps of the script
    # shellcheck disable=SC2016  # expanded by the inner shell
    unshare --mount --propagation unchanged --pid --fork --kill-child sh -eu -c '
        root=$1; shift
        # fails where / is no mount, which is so inside a chroot; then what is mounted below $root is still private
        mount --make-rprivate / 2>/dev/null || true
        mount --bind "$root" "$root"
        mount --make-rprivate "$root"
        mount -t proc proc "$root/proc"
        mount --bind /dev "$root/dev"
        mount --bind /sys "$root/sys"
        mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
        # unshare keeps lock 9 and ends last; the processes of COMMAND need not inherit the lock
        exec 9>&-
        # in a chroot the kernel refuses namespaces of users, in which tests mount small disks
        cd "$root"
        if pivot_root . mnt 2>/dev/null; then root=/ && cd / && umount -l /mnt; fi
        exec chroot "$root" env -i HOME=/root TERM=dumb LC_ALL=C.UTF-8 \
            PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"' sh "$root" "$@" &
    chroot_entered=$!
    wait "$chroot_entered" || status=$?
    chroot_entered=
    return "$status"
}
# The first process of a namespace may outlive a signal, and unshare passes none on; all end with unshare itself.
chroot_entered=
chroot_end_by_signal() { trap '[ -z "$chroot_entered" ] || kill -KILL "$chroot_entered" 2>/dev/null; exit 130' INT TERM HUP; }
chroot_end_by_signal
# the one mount that can leak out of the namespace, if / was neither private nor a mount
chroot_unleak() { ! mountpoint -q "$1" || umount -l "$1"; }

# chroot_base RELEASE: sets $base to a folder with the minimum of that release, with its security updates where it has any. The
# folder is kept in the cache folder of lib.sh and must not be changed. Ends the script with 75 and a reason if it cannot be made.
chroot_base() {
    local security
    # shellcheck disable=SC2154  # of lib.sh
    base=$ci_cache/debian-$1
    (
        flock 7
        [ ! -e "$base" ] || exit 0
        chroot_make "$base.new" "$1" --include=ca-certificates >&2 || exit 75
        security=$(ci_security_mirror)
        case $1 in
            bookworm | trixie)
                [ -z "$security" ] || echo "deb $security $1-security main" >"$base.new/etc/apt/sources.list.d/security.list"
                ;;
        esac
        mv "$base.new" "$base"
    ) 7>"$base.lock" || { echo "the packages of Debian $1 cannot be had now" && exit 75; }
}

# chroot_fresh ROOT RELEASE: a copy of that folder, which goes when the script ends
chroot_fresh() {
    chroot_base "$2"
    chroot_copies+=("$1")
    trap chroot_drop_all EXIT
    mkdir -p "${1%/*}"
    cp -a "$base" "$1"
}
chroot_copies=()
chroot_drop_all() {
    local copy
    for copy in "${chroot_copies[@]}"; do chroot_drop "$copy"; done
}
chroot_drop() {
    chroot_unleak "$1"
    rm -rf --one-file-system "$1"
}

# chroot_call ROOT USER FUNCTION ARGUMENT...: runs a function of the calling script there
chroot_call() {
    local root=$1 user=$2
    shift 2
    chroot_enter "$root" setpriv --reuid="$user" --regid="$user" --init-groups \
        bash -euo pipefail -c "HOME=~$user; $(declare -f); \"\$@\"" bash "$@"
}

# chroot_install PACKAGE...: inside; apt says something only when it fails
chroot_install() {
    ci_apt update
    ci_apt install "$@"
}
