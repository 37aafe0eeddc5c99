// How the fastest of several kernels is found and remembered, with kernels whose faults are planted.
#include "backend/gpu/contest.h"

#include <gmock/gmock.h>

#include <thread>

#include "backend/gpu/emu/stream.h"
#include "backend/gpu/rt.h"
#include "gpu/card.h"
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

/// Which contender is fastest must not hang on what else the machine does.
struct CountedTime {
  CountedTime() { emu::cards() = {{.counts_threads = true}}; }
  ~CountedTime() { emu::cards() = {{}}; }
};

class Contest : public testing::Test, CountedTime {
 protected:
  /// Writes 0, factor, 2 factor ...; idle blocks make it slow.
  Contender contender(std::string name, float factor, unsigned idle = 0) {
    return {.name = std::move(name),
            .workspace_bytes = 256,
            .run = [=, this](Stream& stream, std::byte* workspace) {
              EXPECT_NE(workspace, nullptr);
              ++num_runs_;
              rt::launch(write, {1 + idle, kCount}, stream.handle(), out_, factor);
            }};
  }
  Verdict hold(const std::vector<Contender>& contenders, double tolerance = 1e-3) {
    return hold_contest(
        contenders, card_.device(), [&](Stream&) { return card_.get(out_, kCount); }, tolerance);
  }
  fs::path path() const { return folder_.path() / "cache" / "products.json"; }
  Card card_;
  float* out_ = card_.room<float>(kCount);
  TemporaryFolder folder_;
  int num_runs_ = 0;
};

TEST_F(Contest, IsWonByTheFastest) {
  const Verdict verdict = hold({contender("slow", 2, 4), contender("fast", 2), contender("slower", 2, 8)});
  EXPECT_EQ(verdict.name, "fast");
  EXPECT_DOUBLE_EQ(verdict.seconds, kCount * 1e-6);
  EXPECT_THAT(verdict.dropped, IsEmpty());
}

TEST_F(Contest, DropsWhoeverDisagreesAndSaysWhere) {
  const Verdict verdict =
      hold({contender("trusted", 2, 4), contender("wrong", 2.01F), contender("near", 2.0001F)});
  EXPECT_EQ(verdict.name, "near");
  EXPECT_THAT(verdict.dropped, ElementsAre("wrong: expected 26 within 0.126 at element 13, got 26.13"));
  EXPECT_THAT(hold({contender("trusted", 2), contender("nan", std::nanf(""))}).dropped,
              ElementsAre(HasSubstr("nan: expected 0")));
}

TEST_F(Contest, DropsWhoeverFailsUnlessItIsTheFirst) {
  Contender failing = contender("failing", 2);
  failing.run = [](Stream&, std::byte*) {
    throw DeviceError(DeviceError::Kind::fault, "not for this shape");
  };
  const Verdict verdict = hold({contender("trusted", 2), failing});
  EXPECT_EQ(verdict.name, "trusted");
  EXPECT_THAT(verdict.dropped, ElementsAre("failing: not for this shape"));
  EXPECT_THROW(hold({failing, contender("other", 2)}), DeviceError);
}

TEST_F(Contest, IsHeldOncePerKey) {
  const std::vector contenders{contender("a", 2, 4), contender("b", 2)};
  const auto ask = [&](const std::string& key, const std::vector<Contender>& among) {
    WinnerFile file(path());
    return find_or_contest(file, key, among, [&] { return hold(among); }).name;
  };
  EXPECT_EQ(ask("card|8x8", contenders), "b");
  const int after_one = num_runs_;
  EXPECT_EQ(ask("card|8x8", contenders), "b");
  EXPECT_EQ(num_runs_, after_one) << "found, not held again";
  EXPECT_EQ(ask("other card|8x8", contenders), "b");
  EXPECT_EQ(num_runs_, 2 * after_one);
  EXPECT_EQ(ask("card|8x8", {contenders[0]}), "a")
      << "a winner that is no contender any more counts for nothing";
  EXPECT_EQ(WinnerFile(path()).find("other card|8x8"), "b") << "others' keys stay";
}

TEST_F(Contest, OfABrokenFileIsHeldAgain) {
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
  WinnerFile nowhere("/proc/nowhere/products.json");
  nowhere.keep("key", {.name = "a"});
  EXPECT_EQ(nowhere.find("key"), std::nullopt);
}

}  // namespace
}  // namespace hearth::gpu
