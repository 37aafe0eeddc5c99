#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <random>

#include "arena/csv.h"
#include "arena/draw.h"
#include "arena/pieces.h"
#include "arena/search.h"
#include "arena/solve.h"
#include "arena/validate.h"
#include "base/error.h"
#include "base/file.h"
#include "shared_data.h"

namespace hearth::arena {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

struct Shape {
  int num_buffers = 0;
  int64_t num_times = 10;
  int64_t max_size = 100;
  /// Alignments are powers of two up to this power.
  int max_alignment_power = 0;
};

int64_t draw(std::mt19937_64& random, int64_t least, int64_t most) {
  return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
}

Problem random_problem(uint64_t seed, const Shape& shape) {
  std::mt19937_64 random(seed);
  Problem problem;
  for (int i = 0; i < shape.num_buffers; ++i) {
    const int64_t lower = draw(random, 0, shape.num_times - 1);
    problem.buffers.push_back({.lower = lower,
                               .upper = draw(random, lower + 1, shape.num_times),
                               .size = draw(random, 0, shape.max_size),
                               .alignment = int64_t{1} << draw(random, 0, shape.max_alignment_power),
                               .id = fmt::format("b{}", i)});
  }
  return problem;
}

/// A rectangle of num_times x height cut at random, again and again, along its sides: the bound is the
/// height, and the lowest height is the bound.
Problem cut_rectangle(uint64_t seed, size_t num_buffers, int64_t num_times, int64_t height) {
  std::mt19937_64 random(seed);
  Problem problem{.buffers = {{.lower = 0, .upper = num_times, .size = height}}};
  while (problem.buffers.size() < num_buffers) {
    const size_t place = random() % problem.buffers.size();
    const Buffer whole = problem.buffers[place];
    Buffer part = whole;
    if (random() % 2 == 0) {
      if (whole.size < 2) continue;
      part.size = draw(random, 1, whole.size - 1);
      problem.buffers[place].size -= part.size;
    } else {
      if (whole.upper - whole.lower < 2) continue;
      part.lower = draw(random, whole.lower + 1, whole.upper - 1);
      problem.buffers[place].upper = part.lower;
    }
    problem.buffers.push_back(part);
  }
  std::shuffle(problem.buffers.begin(), problem.buffers.end(), random);
  return problem;
}

void expect_sound(const Problem& problem, const Solution& solution, uint64_t seed) {
  EXPECT_EQ(validate(problem, solution), std::nullopt) << "seed " << seed;
  EXPECT_EQ(solution.lower_bound, lower_bound(problem)) << "seed " << seed;
  EXPECT_LE(solution.lower_bound, solution.proven_bound) << "seed " << seed;
  EXPECT_LE(solution.proven_bound, solution.height) << "seed " << seed;
  EXPECT_EQ(solution.proven_optimal, solution.proven_bound == solution.height) << "seed " << seed;
}

/// Whether buffers from `next` on can be placed below `height`: tries every offset there is.
bool fits(const Problem& problem, Solution& solution, size_t next, int64_t height) {
  if (next == problem.buffers.size()) return true;
  const Buffer& buffer = problem.buffers[next];
  for (int64_t offset = 0; offset + buffer.size <= height; offset += buffer.alignment) {
    const auto clashes = [&](size_t j) {
      const Buffer& other = problem.buffers[j];
      return buffer.lower < other.upper && other.lower < buffer.upper &&
             offset < solution.offsets[j] + other.size && solution.offsets[j] < offset + buffer.size;
    };
    bool is_free = true;
    for (size_t j = 0; j < next && is_free; ++j) is_free = !clashes(j);
    solution.offsets[next] = offset;
    if (is_free && fits(problem, solution, next + 1, height)) return true;
  }
  return false;
}

int64_t lowest_height(const Problem& problem) {
  Solution solution{.offsets = std::vector<int64_t>(problem.buffers.size())};
  int64_t height = lower_bound(problem);
  while (!fits(problem, solution, 0, height)) ++height;
  return height;
}

TEST(Packer, AnswersAreValidOnRandomProblems) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const Shape shape{.num_buffers = static_cast<int>(seed % 40),
                      .num_times = 1 + static_cast<int64_t>(seed % 23),
                      .max_size = seed % 3 == 0 ? 8 : 1000,
                      .max_alignment_power = static_cast<int>(seed % 5)};
    const Problem problem = random_problem(seed, shape);
    expect_sound(problem, solve(problem, {.steps = 3000}), seed);
    const Solution greedy = solve(problem, {.use_exact = false});
    expect_sound(problem, greedy, seed);
    const int64_t capacity = (greedy.lower_bound + greedy.height) / 2;
    expect_sound(problem, solve(problem, {.capacity = capacity, .steps = 3000}), seed);
  }
}

TEST(Packer, IsOptimalWhereEveryArrangementCanBeTried) {
  int num_above_bound = 0;
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    const Problem problem = random_problem(seed, {.num_buffers = 2 + static_cast<int>(seed % 6),
                                                  .num_times = 6,
                                                  .max_size = 5,
                                                  .max_alignment_power = seed % 2 == 0 ? 0 : 2});
    const Solution solution = solve(problem);
    expect_sound(problem, solution, seed);
    EXPECT_TRUE(solution.proven_optimal) << "seed " << seed;
    EXPECT_EQ(solution.height, lowest_height(problem)) << "seed " << seed;
    if (solution.height > solution.lower_bound) ++num_above_bound;
  }
  EXPECT_GT(num_above_bound, 50);
}

/// What the search alone, without a greedy start, says of `height`.
Verdict search_all(const Problem& problem, int64_t height) {
  const Pieces pieces = cut(problem);
  Solution solution{.offsets = std::vector<int64_t>(problem.buffers.size()), .height = height};
  for (const Piece& piece : pieces.pieces) {
    Search search(piece);
    const Verdict verdict = search.run(height / pieces.unit, {.steps = 10'000'000});
    if (verdict != Verdict::found) return verdict;
    for (size_t i = 0; i < piece.items.size(); ++i)
      solution.offsets[static_cast<size_t>(piece.items[i].buffer)] = search.offsets()[i] * pieces.unit;
  }
  EXPECT_EQ(validate(problem, solution), std::nullopt);
  return Verdict::found;
}

TEST(Search, AgreesWithTryingEveryArrangement) {
  for (uint64_t seed = 0; seed < 10000; ++seed) {
    const Problem problem = random_problem(seed, {.num_buffers = 5 + static_cast<int>(seed % 5),
                                                  .num_times = 8 + static_cast<int64_t>(seed % 4),
                                                  .max_size = 3 + static_cast<int64_t>(seed % 3),
                                                  .max_alignment_power = seed % 2 == 0 ? 0 : 2});
    const int64_t lowest = lowest_height(problem);
    if (lowest == 0) continue;
    EXPECT_EQ(search_all(problem, lowest), Verdict::found) << "seed " << seed;
    EXPECT_EQ(search_all(problem, lowest - 1), Verdict::impossible) << "seed " << seed;
  }
}

TEST(Packer, PutsACutRectangleTogether) {
  int num_greedy = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const Problem problem = cut_rectangle(seed, 20 + seed % 40, 12 + static_cast<int64_t>(seed % 29), 1000);
    const Solution greedy = solve(problem, {.use_exact = false});
    expect_sound(problem, greedy, seed);
    if (greedy.height == 1000) ++num_greedy;
    const Solution exact = solve(problem, {.seconds = 1e6, .steps = 100'000'000});
    expect_sound(problem, exact, seed);
    EXPECT_EQ(exact.height, 1000) << "seed " << seed;
  }
  EXPECT_LT(num_greedy, 300);
}

TEST(Packer, TheSameProblemGetsTheSameAnswer) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Problem problem = cut_rectangle(seed, 150, 100, 10'000);
    const SolveOptions options{.seconds = 1e6, .steps = 50'000};
    EXPECT_EQ(solve(problem, options).offsets, solve(problem, options).offsets) << "seed " << seed;
  }
}

/// Stands still where the whole machine does.
double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

TEST(Packer, StepsEndTheSearch) {
  const Problem problem = cut_rectangle(3, 400, 200, 1 << 20);
  int64_t last_height = kMaxProblemBytes;
  for (const int64_t steps : {0, 1, 1000, 3'000'000}) {
    const double start = processor_seconds();
    const Solution solution = solve(problem, {.seconds = 1e6, .steps = steps});
    EXPECT_LT(processor_seconds() - start, 10) << steps << " steps";
    expect_sound(problem, solution, 3);
    EXPECT_LE(solution.height, last_height) << steps << " steps";
    last_height = solution.height;
  }
  EXPECT_FALSE(solve(problem, {.steps = 0}).proven_optimal);
}

TEST(Packer, SecondsEndTheSearch) {
  const Problem problem = cut_rectangle(3, 400, 200, 1 << 20);
  for (const double seconds : {-1.0, 0.0, 0.2}) {
    const double start = processor_seconds();
    const Solution solution = solve(problem, {.seconds = seconds});
    EXPECT_LT(processor_seconds() - start, 5) << "of " << seconds;
    expect_sound(problem, solution, 3);
    EXPECT_FALSE(solution.proven_optimal);
    EXPECT_GT(solution.seconds, seconds);
  }
}

TEST(Packer, AnswersWithoutTimeAreSoundAndLow) {
  for (const int max_alignment_power : {0, 3}) {
    const Problem problem = random_problem(
        1, {.num_buffers = 20000, .num_times = 10000, .max_alignment_power = max_alignment_power});
    const Solution solution = solve(problem, {.seconds = 0});
    expect_sound(problem, solution, 1);
    EXPECT_LE(static_cast<double>(solution.height), 1.3 * static_cast<double>(solution.lower_bound));
  }
}

TEST(Packer, ACapacityOutOfReachCostsLittleHeight) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const Problem problem = cut_rectangle(seed, 400, 200, 1 << 20);
    const SolveOptions free{.seconds = 1e6, .steps = 100'000'000};
    SolveOptions held = free;
    held.capacity = lower_bound(problem);
    const auto height = static_cast<double>(solve(problem, free).height);
    EXPECT_LE(static_cast<double>(solve(problem, held).height), 1.05 * height) << "seed " << seed;
  }
}

TEST(Packer, EmptyProblem) {
  const Solution solution = solve({});
  EXPECT_EQ(solution.height, 0);
  EXPECT_TRUE(solution.offsets.empty());
  EXPECT_TRUE(solution.proven_optimal);
}

TEST(Packer, OneBuffer) {
  const Problem problem{.buffers = {{.lower = 5, .upper = 9, .size = 77, .alignment = 64}}};
  const Solution solution = solve(problem);
  EXPECT_EQ(solution.height, 77);
  EXPECT_EQ(solution.offsets, std::vector<int64_t>{0});
  EXPECT_TRUE(solution.proven_optimal);
}

TEST(Packer, EmptyBuffersTakeNoRoom) {
  Problem problem{
      .buffers = {{.lower = 0, .upper = 2, .size = 0, .alignment = 64}, {.lower = 1, .upper = 3, .size = 0}}};
  EXPECT_EQ(solve(problem).height, 0);
  for (uint64_t seed = 0; seed < 300; ++seed) {
    problem = cut_rectangle(seed, 30, 40, 1000);
    for (int64_t i = 0; i < 5; ++i)
      problem.buffers.push_back({.lower = 7 * i, .upper = 7 * i + 5, .size = 0});
    expect_sound(problem, solve(problem), seed);
  }
}

TEST(Packer, BuffersOfTheSameTimeAreStacked) {
  Problem problem;
  int64_t total = 0;
  for (int64_t i = 0; i < 50; ++i) {
    problem.buffers.push_back({.lower = 3, .upper = 4, .size = 1 + i % 7});
    total += 1 + i % 7;
  }
  const Solution solution = solve(problem);
  expect_sound(problem, solution, 0);
  EXPECT_EQ(solution.height, total);
}

TEST(Packer, HalfOpenTimesShareTheirBytes) {
  const Problem problem{
      .buffers = {{.lower = 0, .upper = 4, .size = 10}, {.lower = 4, .upper = 8, .size = 10}}};
  const Solution solution = solve(problem);
  EXPECT_EQ(solution.height, 10);
}

TEST(Packer, AlignmentCostsWhatItMust) {
  const Problem problem{.buffers = {{.lower = 0, .upper = 1, .size = 3, .alignment = 4},
                                    {.lower = 0, .upper = 1, .size = 3, .alignment = 4},
                                    {.lower = 0, .upper = 1, .size = 1}}};
  const Solution solution = solve(problem);
  expect_sound(problem, solution, 0);
  EXPECT_EQ(solution.height, 7);
}

TEST(Packer, ACapacityBelowTheBoundCostsNoHeight) {
  const Problem problem = cut_rectangle(8, 200, 100, 1 << 20);
  const SolveOptions free{.seconds = 1e6, .steps = 20'000'000};
  SolveOptions held = free;
  held.capacity = lower_bound(problem) - 1;
  const Solution solution = solve(problem, held);
  expect_sound(problem, solution, 8);
  EXPECT_EQ(solution.height, solve(problem, free).height);
}

TEST(Packer, BrokenBuffersAreRefused) {
  const Buffer good{.lower = 0, .upper = 1, .size = 8};
  Buffer bad = good;
  bad.upper = 0;
  EXPECT_THROW(solve({.buffers = {good, bad}}), InternalError);
  bad = good;
  bad.size = -1;
  EXPECT_THROW(solve({.buffers = {good, bad}}), InternalError);
  bad = good;
  bad.alignment = 0;
  EXPECT_THROW(solve({.buffers = {good, bad}}), InternalError);
  bad = good;
  bad.size = kMaxProblemBytes;
  EXPECT_THROW(solve({.buffers = {good, bad}}), InternalError);
}

TEST(Validator, NamesWhatIsWrong) {
  const Problem problem{.buffers = {{.lower = 0, .upper = 4, .size = 8, .alignment = 4},
                                    {.lower = 3, .upper = 8, .size = 8, .alignment = 4}}};
  const auto verdict = [&](std::vector<int64_t> offsets, int64_t height) {
    return validate(problem, {.offsets = std::move(offsets), .height = height}).value_or("valid");
  };
  EXPECT_EQ(verdict({0, 8}, 16), "valid");
  EXPECT_EQ(verdict({0, 4}, 12), "buffers 0 and 1 overlap");
  EXPECT_EQ(verdict({0, 10}, 18), "buffer 1 has a bad offset 10");
  EXPECT_EQ(verdict({0, -4}, 8), "buffer 1 has a bad offset -4");
  EXPECT_EQ(verdict({0, 8}, 15), "the height is 16, not 15");
  EXPECT_EQ(verdict({0}, 8), "the number of offsets differs from the number of buffers");
}

TEST(Validator, FindsEveryPlantedOverlap) {
  int num_overlaps = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const Problem problem = random_problem(seed, {.num_buffers = 12, .num_times = 8, .max_size = 30});
    Solution solution = solve(problem, {.seconds = 1e6, .steps = 1000});
    std::mt19937_64 random(seed);
    const size_t moved = random() % problem.buffers.size();
    solution.offsets[moved] = draw(random, 0, 150);
    solution.height = 0;
    bool overlap = false;
    for (size_t i = 0; i < problem.buffers.size(); ++i) {
      const Buffer& a = problem.buffers[i];
      const Buffer& b = problem.buffers[moved];
      solution.height = std::max(solution.height, solution.offsets[i] + a.size);
      overlap |= i != moved && a.size > 0 && b.size > 0 && a.lower < b.upper && b.lower < a.upper &&
                 solution.offsets[i] < solution.offsets[moved] + b.size &&
                 solution.offsets[moved] < solution.offsets[i] + a.size;
    }
    EXPECT_EQ(validate(problem, solution).has_value(), overlap) << "seed " << seed;
    num_overlaps += overlap ? 1 : 0;
  }
  EXPECT_GT(num_overlaps, 50);
  EXPECT_LT(num_overlaps, 250);
}

/// Lets a string be read as a file.
class CsvFile {
 public:
  explicit CsvFile(std::string_view text)
      : path_(fs::temp_directory_path() / fmt::format("hearth_plan_{}.csv", getpid())) {
    write_file_atomically(path_, text);
  }
  ~CsvFile() { fs::remove(path_); }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

TEST(PlanCsv, WhatIsWrittenIsReadAgain) {
  const Problem problem = random_problem(4, {.num_buffers = 40, .num_times = 15});
  const Solution solution = solve(problem);
  const CsvFile file(write_csv(problem, solution));
  const Problem again = read_csv(file.path());
  EXPECT_EQ(validate(again, solution), std::nullopt);
  EXPECT_EQ(write_csv(again, solution), write_csv(problem, solution));
}

TEST(PlanCsv, ColumnsMayStandInAnyOrder) {
  const CsvFile file("size, upper ,more,id,lower\r\n\r\n16,9,x,first,2\r\n");
  const Problem problem = read_csv(file.path());
  ASSERT_EQ(problem.buffers.size(), 1U);
  EXPECT_EQ(problem.buffers[0].id, "first");
  EXPECT_EQ(problem.buffers[0].lower, 2);
  EXPECT_EQ(problem.buffers[0].upper, 9);
  EXPECT_EQ(problem.buffers[0].size, 16);
}

TEST(PlanCsv, AHeaderAloneIsAnEmptyProblem) {
  const CsvFile file("id,lower,upper,size");
  EXPECT_TRUE(read_csv(file.path()).buffers.empty());
}

TEST(PlanCsv, MistakesAreNamedWithTheirLine) {
  const std::string header = "id,lower,upper,size\n";
  const std::pair<std::string, std::string> cases[] = {
      {"", ": expected the header id,lower,upper,size, the file is empty"},
      {"id,lower,upper\n", ":1: expected the header id,lower,upper,size"},
      {"a,0,1,8\n", ":1: expected the header id,lower,upper,size"},
      {header + "a,0,1,8\nb,0,1\n", ":3: expected a whole number from 0 to 1125899906842624, got ''"},
      {header + "a,0,1,8.5\n", ":2: expected a whole number from 0 to 1125899906842624, got '8.5'"},
      {header + "a,-1,1,8\n", ":2: expected a whole number from 0 to 1125899906842624, got '-1'"},
      {header + "a,0,1,99999999999999999999\n",
       ":2: expected a whole number from 0 to 1125899906842624, got '99999999999999999999'"},
      {header + "a,0,1,1125899906842625\n",
       ":2: expected a whole number from 0 to 1125899906842624, got '1125899906842625'"},
      {header + "a,4,4,8\n", ":2: expected lower < upper, got 4 and 4"},
      {header + "a,5,4,8\n", ":2: expected lower < upper, got 5 and 4"},
      {header + "a,0,1,1125899906842624\nb,3,4,1\n",
       ":3: the sizes add up to more than 1125899906842624 bytes"},
  };
  for (const auto& [text, sentence] : cases) {
    const CsvFile file(text);
    try {
      read_csv(file.path());
      ADD_FAILURE() << "read: " << text;
    } catch (const UserError& error) {
      EXPECT_EQ(error.what(), file.path().string() + sentence);
    }
  }
  EXPECT_THROW(read_csv("/nowhere/plan.csv"), UserError);
}

TEST(PlanCsv, TheLargestNumbersDoNotOverflow) {
  const CsvFile file(
      "id,lower,upper,size\na,0,1125899906842624,1125899906842000\nb,1,1125899906842623,624\nc,2,9,0\n");
  const Problem problem = read_csv(file.path());
  const Solution solution = solve(problem);
  EXPECT_EQ(validate(problem, solution), std::nullopt);
  EXPECT_EQ(solution.height, kMaxProblemBytes);
}

TEST(PlanImage, HoldsOneRectanglePerBuffer) {
  const Problem problem = random_problem(6, {.num_buffers = 12, .num_times = 9});
  const std::string svg = draw_svg(problem, solve(problem));
  EXPECT_THAT(svg, HasSubstr("<svg"));
  for (const Buffer& buffer : problem.buffers) {
    if (buffer.size > 0) {
      EXPECT_THAT(svg, HasSubstr(buffer.id));
    }
  }
}

/// The five problems of MiniMalloc (ASPLOS 2023) that greedy orders fail.
TEST(SlowPlans, FiveHardProblemsFitTheirCapacity) {
  HEARTH_SHARED_DATA(folder, "plans");
  constexpr int64_t kCapacity = 1048576;
  for (const char* name : {"A", "B", "C", "D", "E"}) {
    const Problem problem = read_csv(folder / fmt::format("{}.{}.csv", name, kCapacity));
    const Solution solution = solve(problem, {.capacity = kCapacity, .seconds = 60});
    EXPECT_EQ(validate(problem, solution), std::nullopt) << name;
    EXPECT_LE(solution.height, kCapacity) << name;
    fmt::print("{}: {} in {:.2f} s\n", name, solution.height, solution.seconds);
  }
}

}  // namespace
}  // namespace hearth::arena
