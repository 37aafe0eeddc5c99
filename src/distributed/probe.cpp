#include "distributed/probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace hearth::distributed {
namespace {

/// Numbers of elements in the test's arrays: one; less than a chunk; several chunks and a remainder.
constexpr int64_t kCounts[] = {1, 1000, (1 << 19) + 13};

std::vector<float> numbers(int rank, int64_t count) {
  std::vector<float> made(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) made[static_cast<size_t>(i)] = test_number(rank, i);
  return made;
}

/// All-reduces test numbers and returns the index of the first wrong sum; -1 if all are right.
int64_t wrong_sum(ProcessGroup& group, int64_t count) {
  std::vector<float> data = numbers(group.rank(), count);
  group.all_reduce(data, DType::f32);
  for (int64_t i = 0; i < count; ++i) {
    if (data[static_cast<size_t>(i)] != sum_of_test_numbers(group.size(), i)) return i;
  }
  return -1;
}

int64_t wrong_copy(ProcessGroup& group, int64_t count) {
  const std::vector<float> own = numbers(group.rank(), count);
  std::vector<float> all(static_cast<size_t>(count * group.size()));
  group.all_gather(std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(all)));
  for (int64_t i = 0; i < std::ssize(all); ++i) {
    if (all[static_cast<size_t>(i)] != test_number(static_cast<int>(i / count), i % count)) return i;
  }
  return -1;
}

/// Exchanges the results of all ranks and describes the failure of the lowest rank that has one; empty if
/// none has. `wrong`: index of this rank's first wrong number, or -1. Collective call.
std::string verdict(ProcessGroup& group, const char* what, int64_t count, int64_t wrong) {
  std::vector<int64_t> all(static_cast<size_t>(group.size()));
  group.all_gather(std::as_bytes(std::span(&wrong, 1)), std::as_writable_bytes(std::span(all)));
  const auto found = std::ranges::find_if(all, [](int64_t at) { return at != -1; });
  if (found == all.end()) return "";
  return fmt::format("rank {} got a wrong {} of {} test numbers, first at index {}", found - all.begin(),
                     what, count, *found);
}

}  // namespace

float test_number(int rank, int64_t i) { return static_cast<float>((i * 7 + rank * 3) % 8); }

float sum_of_test_numbers(int num_ranks, int64_t i) {
  float sum = 0;
  for (int rank = 0; rank < num_ranks; ++rank) sum += test_number(rank, i);
  return sum;
}

std::string find_fault(ProcessGroup& group) {
  struct GroupTest {
    const char* what;
    int64_t (*first_wrong)(ProcessGroup&, int64_t count);
  };
  for (const int64_t count : kCounts) {
    for (const GroupTest& trial : {GroupTest{"sum", wrong_sum}, {"copy", wrong_copy}}) {
      std::string fault = verdict(group, trial.what, count, trial.first_wrong(group, count));
      if (!fault.empty()) return fault;
    }
  }
  return "";
}

}  // namespace hearth::distributed
