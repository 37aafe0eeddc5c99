# Shared by the scripts of this folder: `source "$(dirname "$0")/lib.sh"`.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# The comment at the top of a script is its help.
case ${1:-} in
  -h | --help)
    sed -n '2,/^[^#]/{/^#/!q;s/^# \{0,1\}//p}' "$ROOT/tools/$(basename "$0")"
    exit
    ;;
esac
cd "$ROOT"
JOBS=${HEARTH_JOBS:-$(nproc)}

say() { printf '== %s\n' "$*"; }
fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}
has_nvcc() { command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; }
has_hipcc() { command -v hipcc >/dev/null || [ -x "${ROCM_PATH:-/opt/rocm}/bin/hipcc" ]; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

# configure PRESET [CMAKE ARGUMENT...]: writes build/PRESET; silent unless it fails. HEARTH_WERROR=ON: warnings are errors
# there from then on.
configure() {
  local preset=$1 log
  shift
  log=build/$preset/configure.log
  mkdir -p "build/$preset"
  cmake --preset "$preset" ${HEARTH_WERROR:+-DHEARTH_WERROR="$HEARTH_WERROR"} "$@" >"$log" 2>&1 </dev/null || {
    cat "$log" >&2
    fail "cmake could not configure build/$preset"
  }
}

# kept SETTING: what build/cpu was configured with; nothing where there is no such folder.
kept() { sed -n "s/^$1:STRING=//p" build/cpu/CMakeCache.txt 2>/dev/null || true; }

# with_module cuda|hip|none: sets MODULE to the arguments of configure by which build/cpu has that vendor's module beside those it has.
with_module() {
  local has
  has=$(kept HEARTH_GPU)
  case $1,";$has;" in
    none,*) has= ;;
    *,*";$1;"*) ;;
    *) has=${has:+$has;}$1 ;;
  esac
  MODULE=(-DHEARTH_GPU="$has" -DHEARTH_GPU_ARCHITECTURES="${HEARTH_GPU_ARCHITECTURES:-}")
}

# compile PRESET [TARGET...]: builds the targets, or everything.
compile() {
  local preset=$1
  shift
  cmake --build "build/$preset" -j "$JOBS" ${1+--target "$@"} </dev/null
}
