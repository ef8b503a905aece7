# Prints what each of $2 people pays of a bill of $1 cents.
total=$1 people=$2

nth=1
while [ "$nth" -le "$people" ]; do
    echo $((total / people))
    nth=$((nth + 1))
done
