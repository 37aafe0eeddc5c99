#include "io/weight_files.h"

#include <cstdio>

#include "base/error.h"

/// weight_files FILE OUT: writes the tensors of a file of weights as safetensors. For torch_files.py.
int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    const hearth::io::WeightFiles files(argv[1]);
    hearth::io::write_safetensors(argv[2], files.tensors());
  } catch (const hearth::UserError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
