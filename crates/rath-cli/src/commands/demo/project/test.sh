# Splits bills, and compares the shares with the bill and with each other.
failed=0

try() {
    sum=0 least= most=
    for share in $(sh split.sh "$1" "$2"); do
        sum=$((sum + share))
        [ -n "$least" ] && [ "$least" -le "$share" ] || least=$share
        [ -n "$most" ] && [ "$most" -ge "$share" ] || most=$share
    done
    if [ "$sum" -ne "$1" ]; then
        echo "$1 for $2: the shares add up to $sum"
        failed=1
    elif [ $((most - least)) -gt 1 ]; then
        echo "$1 for $2: somebody pays $((most - least)) cents more"
        failed=1
    fi
}

try 90 3
try 100 3
try 1999 4
try 7 5
try -100 3
exit "$failed"
