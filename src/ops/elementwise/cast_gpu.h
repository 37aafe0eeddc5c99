#pragma once

#include <cstdint>
#include <span>

#include "ops/many_tensors.h"

/// Casts of many arrays in one launch.
namespace hearth::ops {

/// Elements that each block and each thread of a cast converts at once.
inline constexpr int kCastRun = 8192, kCastElements = 4;

/// An array and the array that receives its elements in another dtype.
template <typename From, typename To>
struct CastArrays {
  const From* in;
  To* out;
};

template <typename From, typename To>
__global__ void __launch_bounds__(kBlockThreads) cast_arrays(ManyTensors<CastArrays<From, To>> all) {
  const BlockRun run = run_of_block(all);
  const CastArrays<From, To> arrays = all.tensors[run.tensor];
  // An array inside of another one need not be aligned for wide loads.
  const bool aligned = reinterpret_cast<uintptr_t>(arrays.in) % (kCastElements * sizeof(From)) == 0 &&
                       reinterpret_cast<uintptr_t>(arrays.out) % (kCastElements * sizeof(To)) == 0;
  for (int64_t i = run.begin + threadIdx.x * kCastElements; i < run.end; i += kBlockThreads * kCastElements) {
    if (!aligned || i + kCastElements > run.end) {
      const int64_t end = i + kCastElements < run.end ? i + kCastElements : run.end;
      for (int64_t rest = i; rest < end; ++rest)
        arrays.out[rest] = rt::from_float<To>(rt::to_float(arrays.in[rest]));
      continue;
    }
    const auto from = rt::load<From, kCastElements>(arrays.in + i);
    rt::Vec<To, kCastElements> to;
    RT_UNROLL
    for (int e = 0; e < kCastElements; ++e) to.at[e] = rt::from_float<To>(rt::to_float(from.at[e]));
    rt::store(arrays.out + i, to);
  }
}

/// Casts arrays of counts[i] elements; arrays_of(i) returns CastArrays<From, To>.
template <typename From, typename To, typename ArraysOf>
void launch_casts(std::span<const int64_t> counts, ArraysOf arrays_of, void* stream) {
  for_many_tensors<CastArrays<From, To>>(
      counts, kCastRun, arrays_of, [&](const ManyTensors<CastArrays<From, To>>& all) {
        rt::launch(cast_arrays<From, To>, {all.num_blocks, kBlockThreads}, stream, all);
      });
}

/// Calls body(from, to) with values of the storage dtypes of the node's first input and output.
template <typename Body>
ir::Kernel with_cast_types(const ir::NodeView& node, Body body) {
  return with_storage_type(node.in_type(0).dtype, [&](auto from) {
    return with_storage_type(node.out_type(0).dtype, [&](auto to) { return body(from, to); });
  });
}

}  // namespace hearth::ops
