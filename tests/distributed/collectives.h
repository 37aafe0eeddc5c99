#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "base/philox.h"
#include "distributed/process_group.h"

/// What every process group has to do, as one rank sees it. The parts of a collective are all called by every
/// rank.
namespace hearth::distributed {

inline std::vector<float> values_of(int rank, int64_t count) {
  PhiloxSequence random(7, static_cast<uint64_t>(rank));
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = random.normal();
  return values;
}
inline float rounded(float value, DType wire) {
  if (wire == DType::f8_e5m2) return f8_e5m2_to_f32(f32_to_f8_e5m2(value));
  return wire == DType::bf16 ? to_f32(to_bf16(value)) : value;
}

/// Written apart from sum.cpp: pairs of neighbors first, then pairs of pairs; who is left over waits.
inline std::vector<float> summed(int size, int64_t count, DType wire) {
  std::vector<std::vector<float>> parts;
  for (int rank = 0; rank < size; ++rank) {
    parts.push_back(values_of(rank, count));
    for (float& value : parts.back()) value = rounded(value, wire);
  }
  while (parts.size() > 1) {
    std::vector<std::vector<float>> next;
    for (size_t i = 0; i < parts.size(); i += 2) {
      if (i + 1 < parts.size())
        for (size_t j = 0; j < parts[i].size(); ++j) parts[i][j] += parts[i + 1][j];
      next.push_back(parts[i]);
    }
    parts = next;
  }
  for (float& value : parts[0]) value = rounded(value, wire == DType::f8_e5m2 ? DType::bf16 : wire);
  return parts[0];
}

inline void add_up_in_one_order_on_every_rank(ProcessGroup& group, int64_t count, DType wire) {
  const std::vector<float> want = summed(group.size(), count, wire);
  for (int round = 0; round < 3; ++round) {
    std::vector<float> data = values_of(group.rank(), count);
    group.all_reduce(data, wire);
    EXPECT_EQ(data, want);
  }
}

inline void give_each_rank_its_part_of_the_sums(ProcessGroup& group, int64_t count, DType wire) {
  const std::vector<float> want = summed(group.size(), count * group.size(), wire);
  const std::vector<float> in = values_of(group.rank(), count * group.size());
  std::vector<float> out(static_cast<size_t>(count));
  group.reduce_scatter(in, out, wire);
  const auto first = want.begin() + group.rank() * count;
  EXPECT_EQ(out, std::vector<float>(first, first + count));
}

inline void move_bytes(ProcessGroup& group, int64_t count) {
  const int rank = group.rank(), size = group.size();
  const int next = (rank + 1) % size, last = (rank + size - 1) % size;
  const std::vector<float> own = values_of(rank, count);
  std::vector<float> all(static_cast<size_t>(count * size)), other = own;
  group.all_gather(std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(all)));
  for (int r = 0; r < size; ++r) {
    const auto first = all.begin() + r * count;
    EXPECT_EQ(std::vector<float>(first, first + count), values_of(r, count));
  }
  group.broadcast(std::as_writable_bytes(std::span(other)), size - 1);
  EXPECT_EQ(other, values_of(size - 1, count));
  group.barrier();
  if (size == 1) return;
  // Even ranks send first: a group need not keep what nobody receives.
  const auto send = [&] { group.send(std::as_bytes(std::span(own)), next); };
  if (rank % 2 == 0 && (rank > 0 || size % 2 == 0)) send();
  group.receive(std::as_writable_bytes(std::span(other)), last);
  if (rank % 2 == 1 || (rank == 0 && size % 2 == 1)) send();
  EXPECT_EQ(other, values_of(last, count));
}

}  // namespace hearth::distributed
