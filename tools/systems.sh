# Shared by what makes Debian systems in folders, to build or to test in.

# mirror: that of HEARTH_DEBIAN_MIRROR, or the first Debian one of this machine's own apt; empty: there is none.
mirror() {
  if [ -n "${HEARTH_DEBIAN_MIRROR:-}" ]; then
    echo "$HEARTH_DEBIAN_MIRROR"
  else
    apt-get indextargets --format '$(ORIGIN)|$(SUITE)|$(REPO_URI)' 2>/dev/null |
      sed -n 's/^Debian|\(stable\|oldstable\|testing\|unstable\)|//p' | head -1
  fi
}

cannot() {
  say "SKIPPED: no Debian system: $*"
  return 77
}
# make_system SUITE FOLDER: a minimal system there, once. Where it cannot be made, it says why and returns 77.
make_system() {
  local suite=$1 folder=$2 from
  [ "$(id -u)" = 0 ] || cannot "it takes root, and this is not" || return
  command -v apt-get >/dev/null || cannot "this machine has no apt" || return
  if [ -e "$folder/made" ]; then return; fi
  from=$(mirror)
  [ -n "$from" ] || cannot "apt knows no Debian mirror (set HEARTH_DEBIAN_MIRROR)" || return
  tools/deps chroot || cannot "debootstrap could not be installed" || return
  say "making a Debian system ($suite) in $folder"
  rm -rf "$folder"
  mkdir -p "$folder"
  debootstrap --variant=minbase "$suite" "$folder" "$from" </dev/null >"$folder.log" 2>&1 ||
    cannot "debootstrap failed: $(tail -1 "$folder.log")" || return
  # Lets dpkg skip fsync: after a crash the system is created again anyway.
  echo force-unsafe-io >"$folder/etc/dpkg/dpkg.cfg.d/unsafe-io"
  touch "$folder/made"
}

# reach_network FOLDER: the system there reaches the network as this one does: name servers, apt's proxy, certificates.
reach_network() {
  cp -L /etc/resolv.conf /etc/hosts "$1/etc/" 2>/dev/null || true
  local settings
  settings=$(apt-config dump 2>/dev/null | grep -iE '^Acquire::(http|https|ftp)::(Proxy|CaInfo)' || true)
  # A mirror may be a copy of some weeks ago, and releases to come say that they are valid for one.
  settings+=$'\nAcquire::Check-Valid-Until "false";\nAPT::Keep-Downloaded-Packages "false";'
  printf '%s\n' "$settings" >"$1/etc/apt/apt.conf.d/90network"
}
