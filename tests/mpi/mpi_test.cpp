// Every collective by MPI; each rank that mpirun starts runs this program.
#include "distributed/mpi/mpi.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "distributed/collectives.h"

namespace hearth::distributed {
namespace {

using testing::MatchesRegex;

ProcessGroup* group = nullptr;

struct Case {
  int64_t count;
  DType wire;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.count << " " << dtype_name(c.wire); }

class Mpi : public testing::TestWithParam<Case> {};

TEST_P(Mpi, AddsUpInOneOrderOnEveryRank) {
  add_up_in_one_order_on_every_rank(*group, GetParam().count, GetParam().wire);
}
TEST_P(Mpi, GivesEachRankItsPartOfTheSums) {
  give_each_rank_its_part_of_the_sums(*group, GetParam().count, GetParam().wire);
}
TEST_P(Mpi, MovesBytes) { move_bytes(*group, GetParam().count); }

// Sizes below, at and above a message's, and what ranks do not divide.
INSTANTIATE_TEST_SUITE_P(Sizes, Mpi,
                         testing::Values(Case{0, DType::f32}, Case{1, DType::f32}, Case{5001, DType::f32},
                                         Case{5001, DType::bf16}, Case{5001, DType::f8_e5m2},
                                         Case{(1 << 18) * 3 + 7, DType::f32}));

/// Run alone: it leaves a group that cannot be used any more.
TEST(MpiDeadline, NamesARankThatDoesNotCome) {
  group->set_collective_id({.step = 412, .index = 3});
  std::vector<float> data(100);
  if (group->rank() == 1) {
    usleep(1'500'000);
    return;
  }
  try {
    group->all_reduce(data, DType::f32);
    ADD_FAILURE() << "expected CommError";
  } catch (const CommError& error) {
    EXPECT_THAT(error.what(), MatchesRegex("rank 1 stopped in all_reduce 3 of step 412, rank [02] waited "
                                           "(0[.][5-9]|[1-9][0-9]*[.][0-9]) s"));
    EXPECT_EQ(error.rank(), 1);
  }
}

}  // namespace
}  // namespace hearth::distributed

/// Leaves the status in the folder HEARTH_STATUSES. The first rank waits for that of every rank, then aborts
/// the group, which is what the others wait for: mpirun may crash or hang where several abort at once.
void leave_status(int status) {
  const char* const folder = std::getenv("HEARTH_STATUSES");
  if (folder == nullptr) return;
  const auto path = [&](int rank) { return std::filesystem::path(folder) / std::to_string(rank); };
  const auto& group = *hearth::distributed::group;
  std::ofstream(path(group.rank())) << status << "\n";
  for (int rank = 0; rank < group.size(); ++rank) {
    for (int i = 0; i < 2000 && !std::filesystem::exists(path(rank)); ++i) usleep(10'000);
  }
  if (group.rank() > 0) sleep(20);
}

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const bool misses = testing::GTEST_FLAG(filter) == "MpiDeadline*";
  const auto group = hearth::distributed::open_mpi(misses ? 0.5 : 60);
  hearth::distributed::group = group.get();
  const int status = RUN_ALL_TESTS();
  std::fflush(stdout);
  if (misses) leave_status(status);
  return status;
}
