# shellcheck shell=bash
# need.sh: for the scripts of bench/, which source it.

# need PACKAGE...: installs those that are not there from apt, as root or by sudo; where that cannot be, they are named
need() {
    local p missing=()
    for p; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing+=("$p")
    done
    [ ${#missing[@]} != 0 ] || return 0
    local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends -o Dpkg::Use-Pty=0)
    [ "$(id -u)" = 0 ] || apt=(sudo "${apt[@]}")
    if ! command -v apt-get >/dev/null || ! command -v "${apt[0]}" >/dev/null; then
        printf 'missing here: %s\n' "${missing[*]}" >&2
        exit 1
    fi
    printf 'installing %s\n' "${missing[*]}" >&2
    { "${apt[@]}" update && "${apt[@]}" install "${missing[@]}"; } >&2
}
