# Each test says PASS or FAIL and its name.
file=$(mktemp)
trap 'rm -f "$file"' EXIT

expect() { # name, section, key, what is printed
  said=$(./ini "$file" "$2" "$3")
  if [ "$said" = "$4" ]; then echo "PASS: $1"; else echo "FAIL: $1"; fi
}

printf '[a]\nkey = value\n[b]\nkey=other value\nempty=\n' >"$file"
expect value a key value
expect section b key 'other value'
expect empty b empty ''
expect missing a none ''
