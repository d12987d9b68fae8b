# shellcheck shell=bash
# debs.sh: where the checks get the Debian packages from; they source it after lib.sh and chroot.sh.

# debs_need RELEASE...: the packages for these, in build/release; builds those that are missing
debs_need() {
    local release missing=()
    for release; do
        compgen -G "build/release/postgresql-$(debs_major "$release")-pgscale_*.deb" >/dev/null || missing+=("$release")
    done
    [ ${#missing[@]} = 0 ] || .ci/release/checks/debian "${missing[@]}"
}

# debs_major RELEASE: the major of PostgreSQL that it carries
debs_major() {
    case $1 in
        bookworm) echo 15 ;;
        trixie) echo 17 ;;
        forky) echo 18 ;;
    esac
}

# debs_fresh ROOT RELEASE: a minimal system of that release, with its package in /packages
debs_fresh() {
    chroot_fresh "$1" "$2"
    mkdir "$1/packages"
    cp build/release/postgresql-"$(debs_major "$2")"-pgscale_*.deb "$1/packages/"
}

# debs_source FOLDER: a copy of the source there
debs_source() {
    mkdir -p "$1"
    git ls-files -z | tar --null -T - -cf - | tar -C "$1" -xf - --no-same-owner
}
