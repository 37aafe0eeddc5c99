# Shared by the tests of packages: `source "$(dirname "$0")/lib.sh"`. Each is given the folder with the packages, or takes
# build/packages, and works in build/package_tests/NAME, which is a copy of a bare system for those that install.
source "$(dirname "${BASH_SOURCE[0]}")/../../tools/lib.sh"
source tools/systems.sh

NAME=$(basename "$0")
PACKAGES=$(cd "${1:-build/packages}" 2>/dev/null && pwd) || fail "expected the packages of tools/package in ${1:-build/packages}, got none"
HERE=$ROOT/build/package_tests/$NAME
SYSTEM=$HERE/system
rm -rf "$HERE"
mkdir -p "$HERE"
# Training as short as can be that still writes a report.
SHORT="train.steps=3 data.count=64 data.val_count=32"

# system SUITE: a fresh copy of a bare Debian in SYSTEM, with a user; there is no compiler in it and no Hearth.
system() {
  mkdir -p build/systems
  # Other tests that want it wait until the first has made it.
  (flock 9 && make_system "$1" "build/systems/$1") 9>"build/systems/$1.lock" || exit
  say "$NAME: a fresh system ($1)"
  cp -a "build/systems/$1" "$SYSTEM"
  reach_network "$SYSTEM"
  mount -t proc proc "$SYSTEM/proc" 2>/dev/null || say "continuing without /proc"
  trap 'umount "$SYSTEM/proc" 2>/dev/null || true; rm -rf "$SYSTEM"' EXIT
  inside useradd -m user
  if inside sh -c 'command -v cc || command -v g++ || command -v clang'; then fail "there is a compiler in the system"; fi
}
inside() {
  chroot "$SYSTEM" /usr/bin/env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
    DEBIAN_FRONTEND=noninteractive "$@" </dev/null
}
# as_user COMMAND: in the user's home, with the threads of this machine.
as_user() { inside su user -c "cd && $1"; }
# apt_quietly ARGUMENT...: what it said is shown where it failed.
apt_quietly() {
  inside apt-get -q -y --no-install-recommends "$@" >"$HERE/apt.log" 2>&1 || {
    tail -20 "$HERE/apt.log"
    fail "apt-get $* failed"
  }
}

# expect_text TEXT WHAT COMMAND...: the command ends well, and what it says holds the text.
expect_text() {
  local said text=$1 what=$2
  shift 2
  said=$("$@" 2>&1) || fail "$what ended with $?: $said"
  [[ $said == *"$text"* ]] || fail "$what: expected '$text' in: $said"
}
# trains RUNNER HEARTH: the demo, its evaluation, what `hearth doctor` finds, and a step with the module for emulated GPUs.
trains() {
  local run=$1 hearth=$2
  expect_text "validation loss" "the demo" "$run" "$hearth train demo $SHORT --out runs/first"
  expect_text "accuracy" "the evaluation" "$run" "$hearth eval runs/first"
  expect_text "hearth     " "hearth doctor" "$run" "$hearth doctor"
  expect_text "emulated" "a step on an emulated GPU" "$run" \
    "$hearth train demo device=emulated train.steps=1 data.count=8 train.batch=4 data.val_count=4 self_test=never --out runs/emulated"
}
