# Shared by tools/test: its stages, what they count to, and what it prints of them at its end.
passed=0 failed=0 skipped=0
declare -a notes=() times=() endings=()
declare -A running=()
STAGES=build/stages

# took SECONDS NAME: how long a stage took, for the table at the end.
took() { times+=("$(printf '%6d  %s' "$1" "$2")"); }
note() {
  notes+=("$*")
  say "$*"
}
pass() {
  passed=$((passed + 1))
  say "passed: $*"
}
bad() {
  failed=$((failed + 1))
  note "FAILED: $*"
}
skip() {
  skipped=$((skipped + 1))
  note "SKIPPED: $*"
}
# ending NAME LOG: keeps what the end repeats of a failed stage: its failed tests and its last lines.
ending() {
  local failures='^\[  FAILED  \] [^ ,]+(,| \(|$)|^ *[0-9]+/[0-9]+ Test +#.*\*\*\*|^FAILED: |^SUMMARY: |: runtime error: |: error: '
  endings+=("$(
    printf -- '-- %s:\n' "$1"
    grep -aE "$failures" "$2" | grep -avE '\*\*\*(Skipped|Not Run \(Disabled\)) ' |
      sed -E 's/^(\[  FAILED  \] [^ ,]+).*/\1/' | sort -u | head -12 | cut -c 1-200 || true
    echo '...'
    tail -20 "$2" | cut -c 1-300
  )")
}

log_of() {
  mkdir -p "$STAGES"
  printf '%s/%s.log' "$STAGES" "$(tr -c 'A-Za-z0-9_\n' - <<<"$1")"
}
# judge NAME STATUS SECONDS: counts a stage that has ended.
judge() {
  case $2 in
    0) pass "$1 ($3 s)" ;;
    77) skip "$1" ;;
    *)
      bad "$1"
      ending "$1" "$(log_of "$1")"
      ;;
  esac
  took "$3" "$1"
}
# stage NAME COMMAND...: one test that is a command of its own; exit status 77 means that it cannot run here.
stage() {
  local name=$1 status=0 start=$SECONDS
  shift
  say "$name"
  "$@" </dev/null 2>&1 | tee "$(log_of "$name")" || status=$?
  judge "$name" "$status" $((SECONDS - start))
}
# step NAME COMMAND...: what later stages need; counts as a test if it fails alone, and its status says whether it did.
step() {
  local name=$1 status=0 start=$SECONDS
  shift
  "$@" </dev/null 2>&1 | tee "$(log_of "$name")" || status=$?
  if [ "$status" != 0 ]; then
    judge "$name" 1 $((SECONDS - start))
    return 1
  fi
  took $((SECONDS - start)) "$name"
}
# beside NAME COMMAND...: a stage that runs while this continues, JOBS of them at a time, and is printed when it has ended.
beside() {
  local name=$1
  shift
  while [ ${#running[@]} -ge "$JOBS" ]; do join_one; done
  "$@" </dev/null >"$(log_of "$name")" 2>&1 &
  running[$!]="$SECONDS $name"
}
join_one() {
  local pid status=0 name start
  wait -n -p pid "${!running[@]}" || status=$?
  read -r start name <<<"${running[$pid]}"
  unset "running[$pid]"
  say "$name"
  cat "$(log_of "$name")"
  judge "$name" "$status" $((SECONDS - start))
}
# joined: waits for every stage that runs beside this.
joined() {
  while [ ${#running[@]} -gt 0 ]; do join_one; done
}

# suite PRESET [CTEST ARGUMENT...]: runs the ctest of build/PRESET and counts its tests.
suite() {
  local preset=$1 log=build/$1/ctest.log lines start=$SECONDS status=0
  shift
  ctest --test-dir "build/$preset" -j "$JOBS" --output-on-failure --no-tests=error --timeout 900 "$@" </dev/null >"$log" 2>&1 ||
    status=$?
  # How a line of ctest ends; names of tests may hold any of these words.
  lines=$(grep -E '^ *[0-9]+/[0-9]+ Test +#' "$log" || true)
  local ran not_run
  ran=$(grep -cE '\.   Passed +[0-9.]+ sec$' <<<"$lines" || true)
  not_run=$(grep -cE '\.\*\*\*(Skipped|Not Run \(Disabled\)) +[0-9.]+ sec$' <<<"$lines" || true)
  local wrong=$(($(grep -c . <<<"$lines" || true) - ran - not_run))
  passed=$((passed + ran)) skipped=$((skipped + not_run)) failed=$((failed + wrong))
  if [ "$status" != 0 ]; then
    cat "$log"
    ending "$preset: tests" "$log"
  fi
  if [ "$wrong" != 0 ]; then
    note "FAILED: $wrong tests of build/$preset"
  elif [ "$status" != 0 ]; then
    bad "$preset: ctest ran no test or failed by itself"
  fi
  grep -hoE 'SKIPPED: .*' "build/$preset/Testing/Temporary/LastTest.log" | sort -u || true
  say "$preset: $ran passed, $wrong failed, $not_run skipped ($((SECONDS - start)) s)"
  took $((SECONDS - start)) "$preset: tests"
}

# shards PROGRAM [ARGUMENT...]: a gtest program, its tests dealt out to processes of which as many run as there are jobs.
shards() {
  local count=$((4 * JOBS))
  seq 0 $((count - 1)) | xargs -P "$JOBS" -I{} env GTEST_TOTAL_SHARDS=$count GTEST_SHARD_INDEX={} "$@"
}

# summary: the seconds of each stage, then what failed, and how many tests there were; false if one failed.
summary() {
  say "seconds of each stage:"
  printf '%s\n' "${times[@]}" | sort -rn | awk '$1 >= 5 { print } $1 < 5 { ++others } END { if (others) print others " others: less than 5" }'
  if [ ${#endings[@]} -gt 0 ]; then
    say "what failed:"
    printf '%s\n' "${endings[@]}"
  fi
  if [ ${#notes[@]} -gt 0 ]; then printf '%s\n' "${notes[@]}"; fi
  say "$((SECONDS / 60)) min $((SECONDS % 60)) s"
  printf '%s passed, %s failed, %s skipped\n' "$passed" "$failed" "$skipped"
  [ "$failed" = 0 ]
}
