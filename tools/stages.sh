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

# Full trainings on emulated GPUs, and several of these in one program.
LONG='GpuTraining.*:GpuOverlap.*:GpuFit.*:*GpuOptimizer.*:*GpuPictures.*:*GpuRecipes.*:WaysToShare.Unequal*'
LONG_IN_SUITE=$LONG:Devices.*:Nccl.*
# Programs that the first ring leaves out: kernels as other GPUs and the race checker see them. mpirun alone starts test_mpi.
LATER='test_(race|tile_.*)'
# suite PRESET RING: runs and counts the tests of build/PRESET, distributed to processes of which JOBS run at a time. RING: first (the
# quick ones) or more (the others). Tests named Slow* get a process each, which starts first.
suite() {
  local preset=$1 start=$SECONDS log ran=0 wrong=0 not_run=0
  export SUITE=build/$1/suite
  rm -rf "$SUITE"
  mkdir -p "$SUITE"
  suite_jobs "build/$preset/tests" "$2" | xargs -r -P "$JOBS" -n 4 bash -c 'suite_job "$@"' _
  for log in "$SUITE"/*.log; do
    [ -e "$log" ] || continue
    # How gtest ends a test; a program that ends before it said so of any is a failure too.
    ran=$((ran + $(grep -cE '^\[       OK \] .* ms\)$' "$log" || true)))
    not_run=$((not_run + $(grep -cE '^\[  SKIPPED \] .* ms\)$' "$log" || true)))
    if [ ! -e "$log.status" ]; then continue; fi
    local failures
    failures=$(grep -cE '^\[  FAILED  \] .* ms\)$' "$log" || true)
    if [ "$failures" = 0 ]; then failures=1; fi
    wrong=$((wrong + failures))
    cat "$log" "$log.status"
    cat "$log" "$log.status" >>"$SUITE/failed"
  done
  grep -ahoE 'SKIPPED: .*' "$SUITE"/*.log 2>/dev/null | sort -u || true
  passed=$((passed + ran)) skipped=$((skipped + not_run)) failed=$((failed + wrong))
  if [ "$wrong" != 0 ]; then
    ending "$preset: tests" "$SUITE/failed"
    note "FAILED: $wrong tests of build/$preset"
  elif [ "$ran" = 0 ]; then
    bad "$preset: no test was run"
  fi
  say "$preset: $ran passed, $wrong failed, $not_run skipped ($((SECONDS - start)) s)"
  took $((SECONDS - start)) "$preset: tests"
}
# suite_jobs FOLDER RING: lines of program, filter, shard, number of shards.
suite_jobs() {
  local program ring=$2 filter shard programs
  programs=$(find "$1" -maxdepth 1 -type f -executable -name 'test_*' ! -name test_mpi | sort)
  if [ "$ring" = more ]; then
    for program in $programs; do
      listed "$program" 'Slow*' | awk -v program="$program" '{ print program, $0, 0, 1 }'
    done
  fi
  for program in $programs; do
    filter=-Slow*:$LONG_IN_SUITE
    if [[ ${program##*/} =~ ^$LATER$ ]]; then
      if [ "$ring" = first ]; then continue; fi
      filter=-Slow*
    elif [ "$ring" = more ]; then
      filter=$LONG_IN_SUITE:-Slow*
      if [ -z "$(listed "$program" "$filter")" ]; then continue; fi
    fi
    for ((shard = 0; shard < 4 * JOBS; ++shard)); do echo "$program $filter $shard $((4 * JOBS))"; done
  done
}
# listed PROGRAM FILTER: names of the tests that match.
listed() { "$1" --gtest_list_tests --gtest_filter="$2" | awk '/^[^ ]/ { suite = $1 } /^ / { print suite $1 }'; }
# suite_job PROGRAM FILTER SHARD SHARDS: one process.
suite_job() {
  local status=0 log
  log=$SUITE/$(basename "$1").$(tr -c 'A-Za-z0-9_\n' - <<<"$2").$3.log
  GTEST_TOTAL_SHARDS=$4 GTEST_SHARD_INDEX=$3 timeout 900 "$1" --gtest_filter="$2" </dev/null >"$log" 2>&1 || status=$?
  if [ "$status" != 0 ]; then
    echo "FAILED: $1 ended with $status, last in $(sed -n 's/^\[ RUN      \] //p' "$log" | tail -1)" >"$log.status"
  fi
}
export -f suite_job

# shards PROGRAM [ARGUMENT...]: a gtest program, its tests dealt out to processes of which as many run as there are jobs.
shards() {
  local count=$((4 * JOBS))
  seq 0 $((count - 1)) | xargs -P "$JOBS" -I{} env GTEST_TOTAL_SHARDS=$count GTEST_SHARD_INDEX={} "$@"
}

# packages: makes the packages, and tests each where there is neither a compiler nor a Hearth.
packages() {
  local script
  step "packages: made" tools/package all || return 0
  stage "package for Debian 13" tools/package debian13
  for script in tests/package/*; do
    if [ -x "$script" ]; then beside "package: $(basename "$script")" "$script"; fi
  done
  joined
}

# on_processor: what the CPU is and which kernels are chosen for it, since some failures are of one kind alone.
on_processor() {
  if [ ! -x hearth ]; then return; fi
  { ./hearth doctor 2>/dev/null || true; } | sed -nE 's/^processor +/ on /p; s/^hearth .*(kernels for [^,]*).*/, \1/p' | sort | tr -d '\n'
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
  say "$((SECONDS / 60)) min $((SECONDS % 60)) s$(on_processor)"
  printf '%s passed, %s failed, %s skipped\n' "$passed" "$failed" "$skipped"
  [ "$failed" = 0 ]
}
