#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# What setup.sh does while locks are held, with an apt-get that only says so.
set -eu

setup=$(pwd -P)/tools/setup.sh
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
mkdir "$here/bin" "$here/checkout"
cd "$here/checkout"

# The programs that the script finds: no `git`, so that there is a package to be installed.
for program in sh sed grep cat mkdir dirname mktemp rm flock find touch ldconfig; do
    ln -s "$(PATH="$PATH:/usr/sbin:/sbin" command -v $program)" "$here/bin/$program"
done
program() {
    printf '#!/bin/sh\n%s\n' "$2" >"$here/bin/$1"
    chmod +x "$here/bin/$1"
}
for name in cc python3 ip unshare sleep; do program $name 'exit 0'; done
program id 'echo 0'
program cargo 'echo "cargo 1.91.0 (test)"'
# Fails while the number in the file `held` is above zero; each call takes one away.
program apt-get '
held=$(cat ../held)
if [ "$held" -gt 0 ]; then
    echo $((held - 1)) >../held
    echo "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 42 (apt)" >&2
    exit 100
fi
[ ! -e ../broken ] || { echo "E: Unable to locate package git" >&2; exit 100; }
echo "$@" >>../calls'

run() {
    status=0
    : >../calls
    env -i PATH="$here/bin" HOME="$here/home" SETUP_LOCK_SECONDS="$1" sh "$setup" >../output 2>&1 || status=$?
}
fail() {
    echo "test-setup: $1: status $status, it called:" >&2
    cat ../calls >&2
    echo "and printed:" >&2
    cat ../output >&2
    exit 1
}

# A lock that gets free is waited for, with one message; then everything is done, once.
echo 3 >../held
run 60
[ "$status" -eq 0 ] || fail "a lock that gets free is waited for"
[ "$(grep -c 'waiting for it' ../output)" -eq 1 ] || fail "one message is enough"
grep -q 'process 42' ../output || fail "the holder is named"
[ "$(sed 's/ .*//' ../calls)" = "update
install" ] || fail "everything is done once"

# One that is held for ever ends the script.
echo 1000 >../held
run 10
[ "$status" -ne 0 ] || fail "a wait has a bound"
grep -q 'not free within 10 s' ../output || fail "the bound is named"
[ "$(cat ../held)" -gt 900 ] || fail "a wait has a bound"

# Any other failure ends it at once.
echo 0 >../held
touch ../broken
run 60
[ "$status" -ne 0 ] || fail "a failure is one"
! grep -q 'waiting' ../output || fail "only locks are waited for"
rm ../broken

# Another setup is waited for as well.
mkdir -p "$here/home/.cache/terrace"
mkfifo ../release
flock "$here/home/.cache/terrace/setup.lock" sh -c 'echo >../locked; read -r _ <../release' &
holder=$!
until [ -e ../locked ]; do sleep 0.05; done
run 0
[ "$status" -ne 0 ] || fail "another setup holds the lock"
grep -q 'another setup runs' ../output || fail "it says what it waits for"
run 60 &
waiting=$!
until grep -q 'another setup runs' ../output 2>/dev/null && [ ! -s ../calls ]; do sleep 0.05; done
echo >../release
wait "$holder"
wait "$waiting"
grep -q install ../calls || fail "the other one ended"
echo "test-setup: setup.sh waits for locks"
