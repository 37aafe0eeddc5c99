// Every collective over shared memory, for ranks as threads and as processes; missing and corrupt ranks
// named.
#include "comm/shm_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <numeric>
#include <thread>

#include "base/philox.h"
#include "comm/sum.h"

namespace hearth::comm {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kChunkBytes = 4096;

void with_ranks(ShmGroup& group, const std::function<void(Transport&)>& work) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < group.size(); ++rank) {
    threads.emplace_back([&, rank] { work(*group.open(rank)); });
  }
  for (std::thread& thread : threads) thread.join();
}

std::vector<float> values_of(int rank, int64_t count) {
  PhiloxSequence random(7, static_cast<uint64_t>(rank));
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = random.normal();
  return values;
}
float rounded(float value, DType wire) { return wire == DType::bf16 ? to_f32(to_bf16(value)) : value; }

/// Written apart from sum.cpp: pairs of neighbours first, then pairs of pairs; who is left over waits.
std::vector<float> summed(int size, int64_t count, DType wire) {
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
  for (float& value : parts[0]) value = rounded(value, wire);
  return parts[0];
}

struct Case {
  int size;
  int64_t count;
  DType wire;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.size << " ranks, " << c.count << " " << dtype_name(c.wire);
}

class ShmCollectives : public testing::TestWithParam<Case> {
 protected:
  ShmGroup group_{GetParam().size, {.deadline_seconds = 60, .chunk_bytes = kChunkBytes, .checksums = true}};
};

TEST_P(ShmCollectives, AddUpInOneOrderOnEveryRank) {
  const auto [size, count, wire] = GetParam();
  const std::vector<float> want = summed(size, count, wire);
  with_ranks(group_, [&, count = count, wire = wire](Transport& transport) {
    for (int round = 0; round < 3; ++round) {
      std::vector<float> data = values_of(transport.rank(), count);
      transport.all_reduce(data, wire);
      EXPECT_EQ(data, want);
    }
  });
}

TEST_P(ShmCollectives, GiveEachRankItsPartOfTheSums) {
  const auto [size, count, wire] = GetParam();
  const std::vector<float> want = summed(size, count * size, wire);
  with_ranks(group_, [&, count = count, size = size, wire = wire](Transport& transport) {
    const std::vector<float> in = values_of(transport.rank(), count * size);
    std::vector<float> out(static_cast<size_t>(count));
    transport.reduce_scatter(in, out, wire);
    const auto first = want.begin() + transport.rank() * count;
    EXPECT_EQ(out, std::vector<float>(first, first + count));
  });
}

TEST_P(ShmCollectives, MoveBytes) {
  const auto [size, count, wire] = GetParam();
  with_ranks(group_, [&, count = count, size = size](Transport& transport) {
    const int rank = transport.rank(), next = (rank + 1) % size, last = (rank + size - 1) % size;
    const std::vector<float> own = values_of(rank, count);
    std::vector<float> all(static_cast<size_t>(count * size)), other = own;
    transport.all_gather(std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(all)));
    for (int r = 0; r < size; ++r) {
      const auto first = all.begin() + r * count;
      EXPECT_EQ(std::vector<float>(first, first + count), values_of(r, count));
    }
    transport.broadcast(std::as_writable_bytes(std::span(other)), size - 1);
    EXPECT_EQ(other, values_of(size - 1, count));
    transport.barrier();
    if (size == 1) return;
    // Even ranks first: a channel holds two chunks alone.
    const auto send = [&] { transport.send(std::as_bytes(std::span(own)), next); };
    if (rank % 2 == 0) send();
    transport.receive(std::as_writable_bytes(std::span(other)), last);
    if (rank % 2 == 1) send();
    EXPECT_EQ(other, values_of(last, count));
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, ShmCollectives,
                         testing::Values(Case{1, 100, DType::f32}, Case{2, 0, DType::f32},
                                         Case{2, 1, DType::f32}, Case{2, 1024, DType::f32},
                                         Case{2, 5001, DType::f32}, Case{2, 5001, DType::bf16},
                                         Case{3, 4099, DType::f32}, Case{4, 1, DType::f32},
                                         Case{4, 9001, DType::f32}, Case{4, 4097, DType::bf16},
                                         Case{6, 2500, DType::f32}));

/// Runs the work in a process for each rank; each's exit status.
std::vector<int> with_processes(ShmGroup& group, const std::function<int(Transport&)>& work) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < group.size(); ++rank) {
    const pid_t child = fork();
    if (child == 0) _exit(work(*group.open(rank)));
    children.push_back(child);
  }
  std::vector<int> statuses;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    statuses.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
  }
  return statuses;
}

TEST(Shm, JoinsProcesses) {
  constexpr int64_t kCount = 30'000;
  ShmGroup group(3);
  const std::vector<float> want = summed(3, kCount, DType::f32);
  const auto work = [&](Transport& transport) {
    std::vector<float> data = values_of(transport.rank(), kCount);
    for (int i = 0; i < 20; ++i) {
      data = values_of(transport.rank(), kCount);
      transport.all_reduce(data, DType::f32);
    }
    return data == want ? 0 : 1;
  };
  EXPECT_EQ(with_processes(group, work), (std::vector<int>{0, 0, 0}));
}

TEST(Shm, NamesARankThatDiedAndWhereTheOthersWaited) {
  ShmGroup group(3, {.deadline_seconds = 0.3});
  const auto work = [&](Transport& transport) {
    std::vector<float> data(100);
    transport.set_place({.step = 412, .index = 3});
    if (transport.rank() == 1) raise(SIGKILL);
    try {
      transport.all_reduce(data, DType::f32);
    } catch (const CommError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 1 stopped in all_reduce 3 of step 412, rank "),
                                      HasSubstr(" waited 0.3 s")));
      return error.rank() == 1 && !testing::Test::HasFailure() ? 0 : 2;
    }
    return 1;
  };
  EXPECT_EQ(with_processes(group, work), (std::vector<int>{0, -SIGKILL, 0}));
  EXPECT_EQ(group.whereabouts(1), "nothing");
}

TEST(Shm, EndsEveryWaitOnceARankIsGivenUp) {
  ShmGroup group(2, {.deadline_seconds = 3600});
  std::thread waiting([&] {
    const auto transport = group.open(0);
    try {
      transport->barrier();
      ADD_FAILURE() << "expected CommError";
    } catch (const CommError& error) {
      EXPECT_EQ(error.rank(), 1);
    }
  });
  while (group.whereabouts(0) == "nothing") std::this_thread::yield();
  EXPECT_EQ(group.whereabouts(0), "barrier 0 of step 0");
  group.give_up(1);
  waiting.join();
}

TEST(Shm, NamesTheWriterOfWhatCameOtherwiseThanItWasWritten) {
  ShmGroup group(2, {.deadline_seconds = 60, .chunk_bytes = kChunkBytes, .checksums = true});
  const ShmSlot slot = group.memory().contribution(1, 0);
  std::memset(slot.data, 1, kChunkBytes);
  for (const int part : {0, 1}) slot.seal(part, {slot.data + part * kChunkBytes / 2, kChunkBytes / 2});
  slot.data[17] ^= std::byte{4};
  group.memory().board(1).brought.raise();
  std::vector<float> data(kChunkBytes / sizeof(float));
  try {
    group.open(0)->all_reduce(data, DType::f32);
    ADD_FAILURE() << "expected CommError";
  } catch (const CommError& error) {
    EXPECT_EQ(error.rank(), 1);
    EXPECT_THAT(error.what(), HasSubstr("another checksum"));
  }
}

TEST(Sum, IsMadeOfTheSumsOfAlignedNeighbours) {
  constexpr int64_t kCount = 3000;
  std::vector<std::vector<float>> values;
  std::vector<const std::byte*> all;
  for (int i = 0; i < 13; ++i) values.push_back(values_of(i, kCount));
  for (const std::vector<float>& one : values) all.push_back(std::as_bytes(std::span(one)).data());
  const auto sum = [](std::span<const std::byte* const> from) {
    std::vector<float> made(kCount);
    sum_in_order(DType::f32, from, std::as_writable_bytes(std::span(made)).data(), kCount);
    return made;
  };
  const std::vector<float> want = sum(all);
  for (const size_t block : {2UL, 4UL, 8UL}) {
    std::vector<std::vector<float>> parts;
    for (size_t first = 0; first < all.size(); first += block)
      parts.push_back(sum(std::span(all).subspan(first, std::min(block, all.size() - first))));
    std::vector<const std::byte*> of_parts;
    for (const std::vector<float>& part : parts) of_parts.push_back(std::as_bytes(std::span(part)).data());
    EXPECT_EQ(sum(of_parts), want) << "blocks of " << block;
  }
}

}  // namespace
}  // namespace hearth::comm
