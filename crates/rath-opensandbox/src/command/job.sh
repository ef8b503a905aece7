# Runs the command in "$@" with what the lines above say. Its output is printed as lines of Base64, each with the mark of the job and of
# its stream; the last line has the exit status. So it arrives byte for byte over an interface for lines of text.
say() { printf '%s\n' "$job$1"; }
refuse() { say "f$1"; rm -rf "$here"; exit 0; }
# Kills all processes of the command: they carry its mark in their environment, also in sessions of their own.
end_all() {
    pass=0
    while [ $pass -lt 100 ]; do
        found=
        for file in $(grep -ls "RATH_COMMAND=$job" /proc/[0-9]*/environ); do
            process=${file#/proc/}
            kill -9 "${process%/environ}" && found=1
        done
        [ -n "$found" ] || return 0
        pass=$((pass + 1))
    done
}
# One read at a time, so that output arrives while the command runs.
encode() {
    while text=$(dd bs=49152 count=1 | base64 | tr -d '\n') && [ -n "$text" ]; do
        say "$1$text"
    done
}
exec 9>&2 2>/dev/null
trap end_all TERM INT HUP
mkdir -p "$root" && real=$(cd -P "$root" && pwd -P) || refuse root
cd "$real/$directory" || refuse directory
case "$(pwd -P)/" in "$real"/*) ;; *) refuse outside ;; esac
case $1 in
*/*) program=$1 ;;
*)
    program=
    before=$IFS
    IFS=:
    set -f
    for folder in $search; do
        if [ -f "${folder:-.}/$1" ] && [ -x "${folder:-.}/$1" ]; then
            program=${folder:-.}/$1
            break
        fi
    done
    set +f
    IFS=$before
    ;;
esac
[ -n "$program" ] && [ -e "$program" ] || refuse missing
[ ! -d "$program" ] && [ -x "$program" ] || refuse denied
# What a shell would take for a script.
case $(dd if="$program" bs=4 count=1 | tr -d '\0') in '' | '#!'* | ?ELF*) ;; *) refuse format ;; esac
mkfifo "$here/1" "$here/2" || refuse fifo
encode o <"$here/1" 2>/dev/null &
out=$!
encode e <"$here/2" >&9 2>/dev/null &
err=$!
(
    if env RATH_COMMAND="$job" sleep "$limit" || { [ $? -eq 1 ] && env RATH_COMMAND="$job" sleep "${limit%.*}"; }; then
        : >"$here/late"
        end_all
    fi
) >/dev/null 2>&1 </dev/null 9>&- &
(
    exec 9>&-
    launch "$@"
) <"$input" >"$here/1" 2>"$here/2"
status=$?
[ -e "$here/late" ] && status=late
end_all
# A process without the mark may hold the pipes open.
(env RATH_COMMAND="$job" sleep 2 && kill -9 $out $err) >/dev/null 2>&1 </dev/null 9>&- &
wait $out
wait $err
end_all
say "x$status"
rm -rf "$here"
