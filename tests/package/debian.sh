# What the tests of Debian packages do.

# newer FILE TO: the same package with a higher version.
newer() {
  local tree=$HERE/newer
  rm -rf "$tree"
  dpkg-deb -R "$1" "$tree"
  sed -i 's/^Version: .*/&+upgrade/' "$tree/DEBIAN/control"
  dpkg-deb --root-owner-group -Znone -b "$tree" "$2" >/dev/null
  rm -rf "$tree"
}
sums() { (cd "$SYSTEM/home/user" && find . -type f -exec sha256sum {} + | sort); }

# found_by_shells: manual pages and completions, where man and the shells look for them.
found_by_shells() {
  apt_quietly install man-db bash-completion zsh fish
  expect_text "Train a model from a recipe and write a run folder" "man hearth-train" inside man -P cat hearth-train
  expect_text "train" "bash" inside bash -c '. /usr/share/bash-completion/bash_completion; _completion_loader hearth
    COMP_WORDS=(hearth tra) COMP_CWORD=1; _hearth; echo "${COMPREPLY[@]}"'
  expect_text "_hearth" "zsh" inside zsh -c 'autoload -Uz compinit; compinit -u; echo $_comps[hearth]'
  expect_text "--resume:" "zsh" inside zsh -c '_describe() { print -r -- $found; }; compadd() { print -r -- $@; }; _files() { }
    fpath+=(/usr/share/zsh/vendor-completions); autoload -Uz _hearth; words=(hearth train "") CURRENT=3; _hearth'
  expect_text "--resume" "fish" inside fish -c 'complete -C "hearth train --res"'
}

# debian SUITE NUMBER
debian() {
  local package file
  package=$(compgen -G "$PACKAGES/hearth_*~debian$2_*.deb") || {
    say "SKIPPED: there is no package for Debian $2 in $PACKAGES"
    exit 77
  }
  system "$1"
  cp "$package" "$SYSTEM/hearth.deb"
  apt_quietly update
  apt_quietly install /hearth.deb
  trains as_user hearth
  for file in recipes/*.yaml; do cmp "$file" "$SYSTEM/usr/share/hearth/$file"; done
  found_by_shells
  sums >"$HERE/before"
  newer "$package" "$SYSTEM/newer.deb"
  apt_quietly install /newer.deb
  expect_text "+upgrade" "the upgrade" inside dpkg-query -W hearth
  expect_text "accuracy" "the evaluation after the upgrade" as_user "hearth eval runs/first"
  apt_quietly purge hearth
  if inside sh -c 'find /usr /etc /var/lib -iname "*hearth*" ! -path "/var/lib/apt/*" | grep .'; then fail "the purge has left files"; fi
  sums | diff "$HERE/before" - || fail "the user's files have changed"
  say "debian$2: installed, trained, upgraded, removed"
}
