// How the fastest of several kernels is found and remembered, with kernels whose faults are planted.
#include "backend/gpu/autotune.h"

#include <gmock/gmock.h>

#include <thread>

#include "backend/gpu/emu/stream.h"
#include "backend/gpu/rt.h"
#include "gpu/gpu.h"
#include "ops/random/draw.h"
#include "temporary_folder.h"

namespace hearth::gpu {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int kCount = 64;

__global__ void write(float* out, float factor) {
  if (blockIdx.x == 0) out[threadIdx.x] = static_cast<float>(threadIdx.x) * factor;
}

constexpr int kTerms = 16384;

/// Sums of products of drawn numbers, from the first term on or from the last.
__global__ void sum_products(float* out, int first, int step, int count) {
  const auto column = static_cast<int>(threadIdx.x);
  float sum = 0;
  for (int i = 0, term = first; i < count; ++i, term += step)
    sum += ops::drawn_element(1, term) * ops::drawn_element(2, int64_t{term} * kCount + column);
  out[column] = rt::to_float(rt::from_float<rt::bf16>(sum));
}

/// Which candidate is fastest must not hang on what else the machine does.
struct CountedTime {
  CountedTime() { emu::gpus() = {{.counts_threads = true}}; }
  ~CountedTime() { emu::gpus() = {{}}; }
};

class Autotune : public testing::Test, CountedTime {
 protected:
  /// Writes 0, factor, 2 factor ...; idle blocks make it slow.
  Candidate candidate(std::string name, float factor, unsigned idle = 0) {
    return {.name = std::move(name),
            .workspace_bytes = 256,
            .run = [=, this](Stream& stream, std::byte* workspace) {
              EXPECT_NE(workspace, nullptr);
              ++num_runs_;
              rt::launch(write, {1 + idle, kCount}, stream.handle(), out_, factor);
            }};
  }
  Candidate product(std::string name, int first, int step, int count) {
    return {.name = std::move(name), .run = [=, this](Stream& stream, std::byte*) {
              rt::launch(sum_products, {1, kCount}, stream.handle(), out_, first, step, count);
            }};
  }
  AutotuneResult hold(const std::vector<Candidate>& candidates,
                      const AutotuneOptions& options = {.tolerance = {.absolute = 0.126}}) {
    return autotune(
        candidates, gpu_.device(), [&](Stream&) { return gpu_.get(out_, kCount); }, options);
  }
  fs::path path() const { return folder_.path() / "cache" / "matmuls.json"; }
  Gpu gpu_;
  float* out_ = gpu_.room<float>(kCount);
  TemporaryFolder folder_;
  int num_runs_ = 0;
};

TEST_F(Autotune, IsWonByTheFastest) {
  const AutotuneResult verdict =
      hold({candidate("slow", 2, 4), candidate("fast", 2), candidate("slower", 2, 8)});
  EXPECT_EQ(verdict.name, "fast");
  EXPECT_DOUBLE_EQ(verdict.seconds, kCount * 1e-6);
  EXPECT_THAT(verdict.dropped, IsEmpty());
}

TEST_F(Autotune, DropsWhoeverDisagreesAndSaysWhere) {
  const AutotuneResult verdict =
      hold({candidate("trusted", 2, 4), candidate("wrong", 2.01F), candidate("near", 2.0001F)});
  EXPECT_EQ(verdict.name, "near");
  EXPECT_THAT(verdict.dropped, ElementsAre("wrong: expected 26 within 0.126 at element 13, got 26.13"));
  EXPECT_THAT(hold({candidate("trusted", 2), candidate("nan", std::nanf(""))}).dropped,
              ElementsAre(HasSubstr("nan: expected 0")));
}

TEST_F(Autotune, SeesALostTermBeyondAnyOrderOfSums) {
  const AutotuneOptions options{.tolerance = sum_tolerance(kTerms, ops::kDrawnProduct, DType::bf16)};
  const AutotuneResult verdict =
      hold({product("trusted", 0, 1, kTerms), product("backwards", kTerms - 1, -1, kTerms),
            product("without the last term", 0, 1, kTerms - 1)},
           options);
  EXPECT_THAT(verdict.dropped, ElementsAre(HasSubstr("without the last term: expected ")));
}

TEST_F(Autotune, IsNotDecidedByAnOutlier) {
  // The first run that is measured takes long where others are fast, and is fast where others take long.
  const auto unsteady = [&](std::string name, unsigned usually, unsigned once) {
    Candidate made = candidate(std::move(name), 2);
    made.run = [=, this, number = std::make_shared<int>(0)](Stream& stream, std::byte*) {
      const unsigned idle = (*number)++ == 1 ? once : usually;
      rt::launch(write, {1 + idle, kCount}, stream.handle(), out_, 2.0F);
    };
    return made;
  };
  const AutotuneResult verdict =
      hold({candidate("steady", 2, 4), unsteady("fast", 2, 99), unsteady("slow", 9, 0)});
  EXPECT_EQ(verdict.name, "fast");
  EXPECT_DOUBLE_EQ(verdict.seconds, 3 * kCount * 1e-6) << "the median";
}

TEST_F(Autotune, EndsWithItsTime) {
  double seconds = 0;
  const auto passing = [&](std::string name, unsigned idle) {
    Candidate made = candidate(std::move(name), 2, idle);
    made.run = [&, run = made.run](Stream& stream, std::byte* workspace) {
      seconds += 1;
      run(stream, workspace);
    };
    return made;
  };
  const std::vector candidates{passing("a", 4), passing("b", 2), passing("c", 0)};
  const auto within = [&](double max_seconds) {
    seconds = 0;
    num_runs_ = 0;
    return hold(candidates, {.max_seconds = max_seconds, .now = [&] { return seconds; }});
  };
  EXPECT_EQ(within(100).name, "c");
  EXPECT_EQ(num_runs_, 18);
  const AutotuneResult one = within(6);
  EXPECT_EQ(one.name, "a");
  EXPECT_EQ(one.num_not_measured, 2);
  EXPECT_EQ(num_runs_, 6);
  EXPECT_EQ(within(7).name, "b") << "one run is enough for what was begun";
  EXPECT_EQ(num_runs_, 8);
  EXPECT_EQ(within(0).name, "a") << "the first is always tried";
  EXPECT_EQ(num_runs_, 2);

  WinnerFile file(path());
  const auto none = [](const std::string&) { return false; };
  find_or_autotune(file, "key", none, [&] { return within(6); });
  EXPECT_EQ(file.find("key"), std::nullopt) << "it may be found out the next time";
  find_or_autotune(file, "key", none, [&] { return within(100); });
  EXPECT_EQ(file.find("key"), "c");
}

TEST_F(Autotune, DropsWhoeverFailsUnlessItIsTheFirst) {
  Candidate failing = candidate("failing", 2);
  failing.run = [](Stream&, std::byte*) {
    throw DeviceError(DeviceError::Kind::fault, "not for this shape");
  };
  const AutotuneResult verdict = hold({candidate("trusted", 2), failing});
  EXPECT_EQ(verdict.name, "trusted");
  EXPECT_THAT(verdict.dropped, ElementsAre("failing: not for this shape"));
  EXPECT_THROW(hold({failing, candidate("other", 2)}), DeviceError);
}

TEST_F(Autotune, IsHeldOncePerKey) {
  const std::vector candidates{candidate("a", 2, 4), candidate("b", 2)};
  const auto ask = [&](const std::string& key, const std::vector<Candidate>& among) {
    WinnerFile file(path());
    const auto accepts = [&](const std::string& name) {
      return std::ranges::find(among, name, &Candidate::name) != among.end();
    };
    return find_or_autotune(file, key, accepts, [&] { return hold(among); }).name;
  };
  EXPECT_EQ(ask("GPU|8x8", candidates), "b");
  const int after_one = num_runs_;
  EXPECT_EQ(ask("GPU|8x8", candidates), "b");
  EXPECT_EQ(num_runs_, after_one) << "found, not held again";
  EXPECT_EQ(ask("other GPU|8x8", candidates), "b");
  EXPECT_EQ(num_runs_, 2 * after_one);
  EXPECT_EQ(ask("GPU|8x8", {candidates[0]}), "a")
      << "a winner that is no candidate any more counts for nothing";
  EXPECT_EQ(WinnerFile(path()).find("other GPU|8x8"), "b") << "others' keys stay";
}

TEST_F(Autotune, WinnersAreFoundByTheEndsOfTheirKeys) {
  WinnerFile file(path());
  for (const char* key : {"GPU|lib 1|8x8", "GPU|lib 2|8x8", "GPU|lib 2|9x9", "other|lib 3|8x8", "GPU|8x8"})
    file.keep(key, {.name = "a"});
  EXPECT_THAT(file.find_between("GPU|lib ", "|8x8"), ElementsAre("1", "2"));
  EXPECT_THAT(file.find_between("GPU|8", "|8x8"), IsEmpty()) << "ends that overlap";
}

TEST_F(Autotune, OfABrokenFileIsHeldAgain) {
  WinnerFile file(path());
  file.keep("key", {.name = "a", .seconds = 0.5});
  ASSERT_EQ(file.find("key"), "a");
  for (const char* text :
       {"", "{", "[1]", "{\"format\":1}", "{\"format\":2,\"winners\":{\"key\":{\"name\":\"a\"}}}",
        "{\"format\":1,\"winners\":{\"key\":7}}", "{\"format\":1,\"winners\":{\"key\":{\"name\":7}}}"}) {
    write_file_atomically(path(), text);
    EXPECT_EQ(file.find("key"), std::nullopt) << text;
    file.keep("key", {.name = "b", .seconds = 0.25});
    EXPECT_EQ(file.find("key"), "b") << text;
  }
  WinnerFile nowhere("/proc/nowhere/matmuls.json");
  nowhere.keep("key", {.name = "a"});
  EXPECT_EQ(nowhere.find("key"), std::nullopt);
}

}  // namespace
}  // namespace hearth::gpu
