# shellcheck shell=bash
# lib.sh: what the scripts of .ci share; they source it.

# Downloads and builds that take long are kept here; the folder may be deleted at any time.
ci_cache=${PGSCALE_CI_CACHE:-/var/cache/pgscale-ci}
if ! mkdir -p "$ci_cache" 2>/dev/null || [ ! -w "$ci_cache" ]; then
    ci_cache=$PWD/build/ci
    mkdir -p "$ci_cache"
fi

# ci_release MAJOR: the Debian release that carries this major of PostgreSQL
ci_release() {
    case $1 in
        17) echo trixie ;;
        18 | arm64-18) echo forky ;;
        # and experimental, whose base it is
        19 | arm64-19) echo sid ;;
        arm64) (. /etc/os-release && echo "$VERSION_CODENAME") ;;
        *) return 1 ;;
    esac
}

# ci_mirror: the Debian mirror that this machine's own apt uses
ci_mirror() { ci_archive ''; }
# ci_security_mirror: the mirror of the security updates that this machine's own apt uses; nothing if it uses none
ci_security_mirror() { ci_archive -security || true; }
ci_archive() {
    # shellcheck disable=SC2016  # apt's variables, not the shell's
    apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
        awk -v r="$(. /etc/os-release && echo "$VERSION_CODENAME")" -v part="$1" \
            '($1 == r part || $1 ~ "^(old)*stable" part "$") && $2 == "main" {print $3; found = 1; exit} END {exit !found}'
}

# ci_scripts: the files that the extension's SQL is in: the parts of the install script, and the upgrade scripts
ci_scripts() {
    find src -name '*.sql'
    find sql -name 'pgscale--*--*.sql'
}

# quietly COMMAND...: its output is of interest only when it fails
quietly() {
    local out status=0
    out=$("$@" 2>&1) || status=$?
    [ "$status" = 0 ] || printf '%s\n' "$out" >&2
    return "$status"
}

# ci_need PACKAGE...: installs those that are missing
ci_need() {
    local p missing=()
    for p; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing+=("$p")
    done
    [ ${#missing[@]} != 0 ] || return 0
    ci_apt update && ci_apt install "${missing[@]}"
}

# ci_apt ARGUMENT...: apt-get as root; its output appears only if it fails
ci_apt() {
    local as=()
    [ "$(id -u)" = 0 ] || as=(sudo)
    quietly "${as[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends -o Dpkg::Use-Pty=0 "$@"
}
