// Every collective over shared memory, for ranks as threads and as processes; missing ranks named;
// and what all process groups have.
#include "distributed/shm/shm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <numeric>
#include <thread>

#include "backend/gpu/modules.h"
#include "base/error.h"
#include "distributed/collectives.h"
#include "distributed/shared_memory.h"
#include "distributed/sum.h"

namespace hearth::distributed {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

constexpr int64_t kChunkBytes = 4096;

void with_ranks(ShmGroup& group, const std::function<void(ProcessGroup&)>& work) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < group.size(); ++rank) {
    threads.emplace_back([&, rank] { work(*group.open(rank)); });
  }
  for (std::thread& thread : threads) thread.join();
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
  ShmGroup group_{GetParam().size, {.deadline_seconds = 60, .chunk_bytes = kChunkBytes}};
};

TEST_P(ShmCollectives, AddUpInOneOrderOnEveryRank) {
  with_ranks(group_, [](ProcessGroup& own) {
    add_up_in_one_order_on_every_rank(own, GetParam().count, GetParam().wire);
  });
}
TEST_P(ShmCollectives, GiveEachRankItsPartOfTheSums) {
  with_ranks(group_, [](ProcessGroup& own) {
    give_each_rank_its_part_of_the_sums(own, GetParam().count, GetParam().wire);
  });
}
TEST_P(ShmCollectives, MoveBytes) {
  with_ranks(group_, [](ProcessGroup& own) { move_bytes(own, GetParam().count); });
}

INSTANTIATE_TEST_SUITE_P(Sizes, ShmCollectives,
                         testing::Values(Case{1, 100, DType::f32}, Case{2, 0, DType::f32},
                                         Case{2, 1, DType::f32}, Case{2, 1024, DType::f32},
                                         Case{2, 5001, DType::f32}, Case{2, 5001, DType::bf16},
                                         Case{3, 4099, DType::f32}, Case{4, 1, DType::f32},
                                         Case{4, 9001, DType::f32}, Case{4, 4097, DType::bf16},
                                         Case{6, 2500, DType::f32}, Case{2, 9001, DType::f8_e5m2},
                                         Case{3, 100, DType::f8_e5m2}));

/// Runs the work in a process for each rank; each's exit status.
std::vector<int> with_processes(ShmGroup& group, const std::function<int(ProcessGroup&)>& work) {
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
  const auto work = [&](ProcessGroup& own) {
    std::vector<float> data = values_of(own.rank(), kCount);
    for (int i = 0; i < 20; ++i) {
      data = values_of(own.rank(), kCount);
      own.all_reduce(data, DType::f32);
    }
    return data == want ? 0 : 1;
  };
  EXPECT_EQ(with_processes(group, work), (std::vector<int>{0, 0, 0}));
}

/// One call's chunks come into the places of another's, which a slow rank may still read.
TEST(Shm, CollectivesFollowEachOther) {
  constexpr int kRounds = 100;
  constexpr int64_t kBytes = 16 * kChunkBytes;
  constexpr size_t kCount = 3 * kBytes / sizeof(float);
  ShmGroup group(4, {.deadline_seconds = 60, .chunk_bytes = kBytes});
  with_ranks(group, [](ProcessGroup& own) {
    const auto rank = static_cast<size_t>(own.rank()), size = static_cast<size_t>(own.size());
    std::vector<float> mine(kCount), sums(kCount);
    const auto differ = [](std::span<const float> values, size_t want) {
      return std::ranges::any_of(values, [&](float value) { return value != static_cast<float>(want); });
    };
    int num_wrong = 0;
    for (size_t round = 0; round < kRounds; ++round) {
      // Pages that nobody has touched are written slowly.
      const SharedMemory pages(static_cast<int64_t>(size * kCount * sizeof(float)));
      const std::span<float> all(reinterpret_cast<float*>(pages.data()), size * kCount);
      if (rank > 0) std::ranges::fill(all, 0.0F);
      std::ranges::fill(mine, static_cast<float>(round + rank));
      own.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(all));
      std::ranges::fill(sums, static_cast<float>(round));
      own.all_reduce(sums, DType::f32);
      for (size_t r = 0; r < size; ++r) num_wrong += differ(all.subspan(r * kCount, kCount), round + r);
      num_wrong += differ(sums, size * round);
    }
    EXPECT_EQ(num_wrong, 0);
  });
}

TEST(CommError, SaysWhoWaitedForWhomHowLong) {
  const CommError error = CommError::missing(1, to_string("all_reduce", {.step = 412, .index = 3}), 0, 0.34);
  EXPECT_STREQ(error.what(), "rank 1 stopped in all_reduce 3 of step 412, rank 0 waited 0.3 s");
  EXPECT_EQ(error.rank(), 1);
}

TEST(Shm, NamesARankThatDiedAndWhereTheOthersWaited) {
  ShmGroup group(3, {.deadline_seconds = 1});
  const auto work = [&](ProcessGroup& own) {
    std::vector<float> data(100);
    own.set_collective_id({.step = 412, .index = 3});
    if (own.rank() == 1) raise(SIGKILL);
    try {
      own.all_reduce(data, DType::f32);
    } catch (const CommError& error) {
      EXPECT_THAT(error.what(), MatchesRegex("rank 1 stopped in all_reduce 3 of step 412, rank [02] waited "
                                             "[1-9][0-9]*[.][0-9] s"));
      return error.rank() == 1 && !testing::Test::HasFailure() ? 0 : 2;
    }
    return 1;
  };
  EXPECT_EQ(with_processes(group, work), (std::vector<int>{0, -SIGKILL, 0}));
  EXPECT_EQ(group.whereabouts(1), "nothing");
}

TEST(Shm, WaitsForWhatRanksMayComputeBetween) {
  ShmGroup group(2, {.deadline_seconds = 0.2});
  const auto late = [&](ProcessGroup& own, double allowed) {
    own.allow(allowed);
    if (own.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(1));
    try {
      own.barrier();
    } catch (const CommError&) {
      return 1;
    }
    return 0;
  };
  EXPECT_EQ(with_processes(group, [&](ProcessGroup& own) { return late(own, 3600); }),
            (std::vector<int>{0, 0}));
  ShmGroup strict(2, {.deadline_seconds = 0.2});
  EXPECT_EQ(with_processes(strict, [&](ProcessGroup& own) { return late(own, 0); })[0], 1);
}

TEST(Shm, EndsEveryWaitOnceARankIsGivenUp) {
  ShmGroup group(2, {.deadline_seconds = 3600});
  std::thread waiting([&] {
    const auto own = group.open(0);
    try {
      own->barrier();
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

TEST(ProcessGroup, SendsToOneRankAndKeepsWhatFailed) {
  ShmGroup group(2, {.deadline_seconds = 1, .chunk_bytes = kChunkBytes});
  const std::vector<std::byte> sent(5 * kChunkBytes, std::byte{7});
  with_ranks(group, [&](ProcessGroup& own) {
    own.start_step(4);
    if (own.rank() == 0) return own.in_step([&] { own.send(sent, 1); });
    std::vector<std::byte> came(sent.size());
    const auto receive = [&] { own.in_step([&] { own.receive(came, 0); }); };
    receive();
    EXPECT_EQ(came, sent);
    own.check();
    receive();
    EXPECT_EQ(came, sent);
    int num_calls = 0;
    own.in_step([&] { ++num_calls; });
    EXPECT_EQ(num_calls, 0) << "after one that failed";
    try {
      own.check();
      ADD_FAILURE() << "nobody sent";
    } catch (const CommError& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank 0 stopped in receive 1 of step 4"));
    }
  });
}

TEST(ProcessGroup, HasPiecesAsOne) {
  ShmGroup group(2, {.deadline_seconds = 60, .chunk_bytes = kChunkBytes});
  with_ranks(group, [](ProcessGroup& own) {
    const auto rank = static_cast<float>(own.rank());
    std::vector<float> first{rank, 2}, second{3 + rank};
    const std::array<std::span<float>, 2> pieces{first, second};
    own.in_step(pieces, [&](std::span<float> all) {
      EXPECT_EQ(all.size(), 3U);
      own.all_reduce(all, DType::f32);
    });
    own.check();
    EXPECT_EQ(first, (std::vector<float>{1, 4}));
    EXPECT_EQ(second, std::vector<float>{7});
  });
}

TEST(ProcessGroup, RefusesDeviceMemoryWithoutTheCapability) {
  ShmGroup group(1);
  const auto own = group.open(0);
  gpu::Device device(gpu::emulator().list_devices()[0]);
  gpu::Stream stream(device);
  EXPECT_FALSE(own->has(Capability::device_memory));
  EXPECT_THROW(own->all_reduce(nullptr, 0, DType::f32, stream), InternalError);
}

TEST(ProcessGroup, BroadcastsBytesThatAreNoWholeFloats) {
  ShmGroup group(3, {.deadline_seconds = 60, .chunk_bytes = kChunkBytes});
  with_ranks(group, [](ProcessGroup& own) {
    std::vector<std::byte> data(2 * kChunkBytes + 7, std::byte{static_cast<uint8_t>(own.rank())});
    own.broadcast(std::span(data), 2);
    EXPECT_EQ(std::ranges::count(data, std::byte{2}), std::ssize(data));
  });
}

TEST(Sum, IsMadeOfTheSumsOfAlignedNeighbors) {
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
}  // namespace hearth::distributed
