# Shared by what compiles kernels for AMD's GPUs in a Debian system. The hipcc of Debian 13 (clang 17) knows no gfx12; its clang 19
# does, with the device library of 17, the GPU's number, and 17's bundler.
CLANG=$(compgen -c clang++- | sort -V | tail -1 || true)
LIBRARY=build/kernels/library

# hipcc_knows TARGET: whether hipcc compiles for it; gfx12 takes clang 19.
hipcc_knows() {
  [[ $1 != gfx12* ]] || [ "$(hipcc --version | sed -n 's/.*clang version \([0-9]*\).*/\1/p')" -ge 19 ]
}

# newer_library TARGET: what clang takes for it where hipcc does not know it: the device library for it in $LIBRARY.
newer_library() {
  if hipcc_knows "$1"; then return; fi
  local bitcode number=$LIBRARY/oclc_isa_version_${1#gfx}.bc
  bitcode=$(dirname "$(find /usr/lib /opt/rocm -name ocml.bc -print -quit 2>/dev/null)")
  mkdir -p "$LIBRARY"
  ln -sf "$bitcode"/*.bc "$LIBRARY/"
  [ -e "$number" ] ||
    printf '@__oclc_ISA_version = linkonce_odr protected local_unnamed_addr addrspace(4) constant i32 12%s, align 4\n' "0${1#gfx12}" |
    "$CLANG" -nogpulib --target=amdgcn-amd-amdhsa -Wno-override-module -x ir -c -emit-llvm - -o "$number"
}

# hip_compiler TARGET: sets COMPILER to the command that compiles HIP for it.
hip_compiler() {
  COMPILER=(hipcc)
  hipcc_knows "$1" || COMPILER=("$CLANG" --rocm-path=/usr "--hip-device-lib-path=$LIBRARY")
}
PATH=$PATH:$(echo /usr/lib/llvm-[12][0-9]/bin | tr ' ' :)

# --- What becomes of them, executed by tests/machine_code.
EMULATOR=build/machine_code

# emulator_tables: its instruction tables, made outside the Debian 13 system; fails where they cannot be had.
emulator_tables() {
  local generation
  tools/deps isa || return
  mkdir -p $EMULATOR
  for generation in gfx11 gfx12; do
    python3 tests/machine_code/generate.py build/isa $generation $EMULATOR/$generation.new >$EMULATOR/$generation.log ||
      fail "no instruction tables for $generation"
    cmp -s $EMULATOR/$generation.new $EMULATOR/$generation.cpp || cp $EMULATOR/$generation.new $EMULATOR/$generation.cpp
  done
}
# emulator: the library that stands in for libamdhip64, in $EMULATOR/build.
emulator() {
  cmake -G Ninja -S tests/machine_code -B $EMULATOR/build -DTABLES="$ROOT/$EMULATOR" >$EMULATOR/configure.log 2>&1 ||
    fail "$(cat $EMULATOR/configure.log)"
  cmake --build $EMULATOR/build
}
# module_of TARGET: the module of build/cpu with kernels for another target alone, in $EMULATOR/TARGET, for HEARTH_MODULES; beside it
# the one for emulated GPUs.
module_of() {
  local target=$1 command to=$EMULATOR/$1
  mkdir -p "$to"
  ln -sf "$ROOT/build/cpu/libhearth_emu.so" "$to/"
  newer_library "$target"
  printf '%s\n' src/ops/*/*_gpu.cpp | xargs -P "$JOBS" -n 1 tools/machine_code kernel "$target"
  command=$(ninja -C build/cpu -t commands libhearth_hip.so | tail -1)
  command=${command//kernels_hip\//$ROOT/$to/}
  (cd build/cpu && eval "$(sed -E "s| -o libhearth_hip.so | -o $ROOT/$to/libhearth_hip.so |" <<<"$command")")
}
