#!/bin/sh
# apart.sh PG_CONFIG COMMAND...: runs COMMAND, as root, where the two folders of the server that `make install` writes to are
# copies of its own. So many may install different builds of pgscale into one server at the same time, and none of them stays.
# The mounts belong to a namespace of their own: the kernel takes them away with the command, however that ends.
set -eu
if [ -z "${PGSCALE_APART-}" ]; then
    PGSCALE_APART=$(mktemp -d "${TMPDIR:-/tmp}/pgscale-apart.XXXXXX")
    export PGSCALE_APART
    chmod 755 "$PGSCALE_APART"
    trap 'rm -rf "$PGSCALE_APART"' EXIT
    trap 'exit 130' INT TERM HUP
    unshare --mount --propagation private "$0" "$@" &
    child=$!
    trap 'kill $child; wait $child; exit 130' INT TERM HUP
    wait $child
    exit
fi
libraries=$("$1" --pkglibdir)
# of what is no pg_config, that would be the root folder
[ -n "$libraries" ] || { echo "no pg_config: $1" >&2 && exit 1; }
for dir in "$libraries" "$("$1" --sharedir)/extension"; do
    mkdir -p "$PGSCALE_APART$dir"
    cp -a "$dir/." "$PGSCALE_APART$dir"
    mount --bind "$PGSCALE_APART$dir" "$dir"
done
shift
unset PGSCALE_APART
exec "$@"
