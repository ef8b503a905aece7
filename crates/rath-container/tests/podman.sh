#!/usr/bin/env bash
# Starts podman for the tests of containers, with a storage of its own, and makes their image of busybox. Prints the process id.
# Needs podman, runc and busybox-static, which is linked statically.
#
# podman.sh DIRECTORY starts it: the socket is DIRECTORY/sock. `kill PID` stops it.
set -euo pipefail
directory=$(realpath -m "$1")
export CONTAINERS_CONF
CONTAINERS_CONF=$(realpath "$(dirname "$0")/containers.conf")
mkdir -p "$directory/image/bin" "$directory/image/etc" "$directory/image/tmp"
chmod 1777 "$directory/image/tmp"
podman=(podman --root "$directory/root" --runroot "$directory/run")

cp /bin/busybox "$directory/image/bin/busybox"
for name in $(/bin/busybox --list); do
    [ "$name" = busybox ] || ln -sf busybox "$directory/image/bin/$name"
done
tar -C "$directory/image" --owner=0 --group=0 -cf - . | "${podman[@]}" import --quiet --change ENV=PATH=/bin - localhost/rath-busybox:1 >&2

# podman leaves files where it is started.
cd "$directory"
rm -f sock
"${podman[@]}" system service --time=0 "unix://$directory/sock" >"$directory/log" 2>&1 &
for _ in $(seq 100); do
    [ -S "$directory/sock" ] && echo "$!" && exit
    sleep 0.1
done
kill "$!"
echo "podman does not listen: $(tail -n 3 "$directory/log")" >&2
exit 1
