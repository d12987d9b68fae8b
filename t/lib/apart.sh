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
# an empty name would be the whole machine
lib=$("$1" --pkglibdir)
share=$("$1" --sharedir)
if [ ! -d "$lib" ] || [ ! -d "$share/extension" ]; then
    echo "apart.sh: $1 is not a pg_config" >&2
    exit 2
fi
for dir in "$lib" "$share/extension"; do
    mkdir -p "$PGSCALE_APART$dir"
    cp -a "$dir/." "$PGSCALE_APART$dir"
    mount --bind "$PGSCALE_APART$dir" "$dir"
done
shift
unset PGSCALE_APART
exec "$@"
