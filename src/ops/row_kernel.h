#pragma once

#include "ops/support.h"

namespace hearth::ops {

/// Returns a kernel that calls row(args, index, scratch) for each of `num_rows` rows, distributed over at
/// most `parts` threads. `scratch` is a per-thread buffer of `scratch_floats` floats; null if that is 0.
template <typename Row>
Kernel row_kernel(int64_t num_rows, int parts, int64_t scratch_floats, Row row) {
  const auto run = [=](const KernelArgs& args) {
    args.threads->for_parts(parts, [&](int part) {
      float* scratch =
          scratch_floats == 0 ? nullptr : reinterpret_cast<float*>(args.workspace) + part * scratch_floats;
      const Range rows = split_range(num_rows, parts, part);
      for (int64_t r = rows.begin; r < rows.end; ++r) row(args, r, scratch);
    });
  };
  return {.run = run, .workspace_bytes = parts * scratch_floats * int64_t{sizeof(float)}};
}

}  // namespace hearth::ops
