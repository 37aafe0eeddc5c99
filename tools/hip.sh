# Shared by what compiles kernels for AMD's GPUs in a Debian 13 system. Its hipcc (clang 17) knows no gfx12; its clang 19 does, with
# the device library of 17, the GPU's number, and 17's bundler.
CLANG=clang++-19
LIBRARY=build/kernels/library

# newer_library TARGET: the device library for it in $LIBRARY.
newer_library() {
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
  if [[ $1 == gfx12* ]]; then COMPILER=("$CLANG" --rocm-path=/usr "--hip-device-lib-path=$LIBRARY"); fi
}
PATH=$PATH:$(echo /usr/lib/llvm-1[0-9]/bin | tr ' ' :)
