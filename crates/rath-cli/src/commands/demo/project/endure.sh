# Splits every bill of up to 50 euros among three. This takes a while.
total=-5000
while [ "$total" -le 5000 ]; do
    sum=0
    for share in $(sh split.sh "$total" 3); do sum=$((sum + share)); done
    [ "$sum" -eq "$total" ] || { echo "$total: the shares add up to $sum"; exit 1; }
    [ $((total % 100)) -ne 0 ] || echo "$total is right"
    total=$((total + 1))
done
