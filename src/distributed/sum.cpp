#include "distributed/sum.h"

#include <algorithm>

#include "backend/cpu/clones.h"
#include "backend/cpu/convert.h"

namespace hearth::distributed {
namespace {

/// Number of elements that are summed at a time, which fit the L1 cache.
constexpr int64_t kRun = 1024;
alignas(64) constexpr float kZeros[kRun] = {};

HEARTH_CLONES void add(const float* a, const float* b, float* sum, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] = a[i] + b[i];
}
/// Computes a + b + 0, as a sum that starts at 0 does: the result is never -0. `sum` may be a or b.
HEARTH_CLONES void add_to_zero(const float* a, const float* b, float* sum, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] = a[i] + b[i] + 0.0F;
}

struct Contributions {
  DType dtype;
  std::span<const std::byte* const> from;
  int64_t at, count;

  Contributions part(size_t first, size_t num) const { return {dtype, from.subspan(first, num), at, count}; }
};

/// Returns the address of the sum, which is in `room`; if there is a single f32 contribution, that
/// contribution itself.
const float* sum_of(const Contributions& all, float* room) {
  if (all.from.size() == 1) return cpu::as_f32(all.dtype, all.from[0], all.at, all.count, room);
  const auto first = static_cast<size_t>(first_part(std::ssize(all.from)));
  alignas(64) float rest[kRun];
  const float* a = sum_of(all.part(0, first), room);
  const float* b = sum_of(all.part(first, all.from.size() - first), rest);
  add(a, b, room, all.count);
  return room;
}

}  // namespace

DType sum_dtype(DType dtype) { return dtype == DType::f8_e5m2 ? DType::bf16 : dtype; }

void sum_in_order(DType dtype, std::span<const std::byte* const> from, std::byte* to, int64_t count) {
  alignas(64) float room[kRun], rest[kRun];
  const size_t first = from.size() == 1 ? 1 : static_cast<size_t>(first_part(std::ssize(from)));
  for (int64_t at = 0; at < count; at += kRun) {
    const Contributions run{dtype, from, at, std::min(kRun, count - at)};
    const float* a = sum_of(run.part(0, first), room);
    const float* b = first == from.size() ? kZeros : sum_of(run.part(first, from.size() - first), rest);
    float* const sum = dtype == DType::f32 ? reinterpret_cast<float*>(to) + at : room;
    add_to_zero(a, b, sum, run.count);
    if (sum == room) cpu::store_f32(sum_dtype(dtype), room, to, at, run.count);
  }
}

}  // namespace hearth::distributed
