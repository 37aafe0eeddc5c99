#include "ui/curve_index.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <fstream>

#include "base/process.h"
#include "temporary_folder.h"
#include "ui/log_line.h"

namespace hearth::ui {
namespace {

using testing::Contains;
using testing::ElementsAre;

double loss_at(int64_t step) {
  return 2 + std::sin(static_cast<double>(step) * 0.37) + (step == 777 ? 50 : 0);
}

std::string line_of(int64_t step) {
  return fmt::format(
      "{{\"current_steps\":{},\"total_steps\":9000,\"loss\":{},\"lr\":0.001,\"grad_norm\":null,"
      "\"percentage\":1.00,\"elapsed_time\":{:.3f}}}\n",
      step, loss_at(step), 0.5 * static_cast<double>(step));
}

std::vector<CurveBucket> curve_of(const CurveIndex& index, const char* key, StepRange range,
                                  size_t max_points) {
  const auto curves = index.curves(range, max_points);
  const auto found = curves.find(key);
  return found == curves.end() ? std::vector<CurveBucket>() : found->second;
}

std::vector<std::string> keys_of(const CurveIndex& index) {
  std::vector<std::string> keys;
  for (const auto& [key, curve] : index.curves({}, 1)) keys.push_back(key);
  return keys;
}

void append(const fs::path& path, std::string_view text) {
  std::ofstream(path, std::ios::app | std::ios::binary) << text;
}

TEST(CurveIndex, BucketsAgreeWithTheFullCurve) {
  const TemporaryFolder folder;
  const fs::path log = folder.path() / "log";
  for (int64_t step = 1; step <= 5000; ++step) append(log, line_of(step));
  CurveIndex index(log, 256);
  while (index.read_more(100'000)) continue;
  EXPECT_THAT(keys_of(index), ElementsAre("loss", "lr", "steps_per_second"));
  const std::vector<CurveBucket> curve = curve_of(index, "loss", {}, 100);
  EXPECT_LE(curve.size(), 100U);
  EXPECT_GE(curve.size(), 40U);
  int64_t next = 1;
  for (const CurveBucket& bucket : curve) {
    EXPECT_EQ(bucket.first_step, next);
    double min = INFINITY, max = -INFINITY, sum = 0;
    for (int64_t step = bucket.first_step; step <= bucket.last_step; ++step) {
      min = std::min(min, loss_at(step));
      max = std::max(max, loss_at(step));
      sum += loss_at(step);
    }
    EXPECT_FLOAT_EQ(bucket.min, static_cast<float>(min));
    EXPECT_FLOAT_EQ(bucket.max, static_cast<float>(max));
    EXPECT_NEAR(bucket.mean, sum / bucket.num_points, 1e-4);
    next = bucket.last_step + 1;
  }
  EXPECT_EQ(next, 5001);
  for (const CurveBucket& bucket : curve_of(index, "steps_per_second", {}, 50))
    EXPECT_FLOAT_EQ(bucket.mean, 2);
}

TEST(CurveIndex, ReadsASmallRangeAtFullResolution) {
  const TemporaryFolder folder;
  const fs::path log = folder.path() / "log";
  for (int64_t step = 1; step <= 5000; ++step) append(log, line_of(step));
  CurveIndex index(log, 64);
  while (index.read_more(1)) continue;
  const std::vector<CurveBucket> curve = curve_of(index, "loss", {770, 790}, 100);
  ASSERT_EQ(curve.size(), 21U);
  for (const CurveBucket& bucket : curve)
    EXPECT_FLOAT_EQ(bucket.mean, static_cast<float>(loss_at(bucket.first_step)));
  EXPECT_TRUE(curve_of(index, "loss", {10, 5}, 100).empty());
  EXPECT_TRUE(curve_of(index, "absent", {}, 100).empty());
}

TEST(CurveIndex, FollowsALogThatGrowsAndIsTruncated) {
  const TemporaryFolder folder;
  const fs::path log = folder.path() / "log";
  CurveIndex index(log);
  EXPECT_FALSE(index.read_more(1 << 20));
  EXPECT_TRUE(keys_of(index).empty());
  append(log, line_of(1) + line_of(2).substr(0, 20));
  EXPECT_FALSE(index.read_more(1 << 20));
  EXPECT_EQ(curve_of(index, "loss", {}, 10).size(), 1U);
  append(log, line_of(2).substr(20) + line_of(3));
  index.read_more(1 << 20);
  EXPECT_EQ(curve_of(index, "loss", {}, 10).size(), 3U);
  const uint64_t version = index.version();
  index.read_more(1 << 20);
  EXPECT_EQ(index.version(), version);
  write_file_atomically(log, line_of(1));  // as a run that resumes
  index.read_more(1 << 20);
  EXPECT_GT(index.version(), version);
  EXPECT_EQ(curve_of(index, "loss", {}, 10).size(), 1U);
  fs::remove(log);
  index.read_more(1 << 20);
  EXPECT_TRUE(keys_of(index).empty());
}

TEST(CurveIndex, SkipsDamagedLines) {
  const TemporaryFolder folder;
  const fs::path log = folder.path() / "log";
  append(log, line_of(1));
  append(
      log,
      "no "
      "JSON\n\n[1]\n{\"loss\":1}\n{\"current_steps\":-3,\"loss\":1}\n{\"current_steps\":1e300,\"loss\":1}\n");
  append(log, std::string("{\"current_steps\":2,\"loss\":\"\0\xff\"}\n", 33));
  append(log, "{\"current_steps\":2,\"loss\":1e999}\n{\"current_steps\":2,\"loss\":NaN}\n");
  append(log, std::string(3 << 20, 'x') + "\n");
  append(log, std::string(100, '[') + "\n" + line_of(3) + "{\"current_steps\":4,\"loss\":1");
  CurveIndex index(log);
  while (index.read_more(1)) continue;
  const std::vector<CurveBucket> curve = curve_of(index, "loss", {}, 10);
  ASSERT_EQ(curve.size(), 2U);
  EXPECT_EQ(curve[1].first_step, 3);
}

TEST(CurveIndex, HasEventsAndGpus) {
  const TemporaryFolder folder;
  const fs::path log = folder.path() / "log";
  const auto gpu = [](int step, const char* throttle) {
    return fmt::format(
        "{{\"current_steps\":{},\"loss\":1,\"gpu\":[7,{{\"address\":\"x\",\"power_w\":120{}}}]}}\n", step,
        throttle);
  };
  append(log, gpu(1, "") + gpu(2, ",\"throttle\":\"heat\"") + gpu(3, ",\"throttle\":\"heat\"") + gpu(4, "") +
                  gpu(5, ",\"throttle\":\"heat\"") +
                  "{\"current_steps\":6,\"event\":\"rolled <b>back</b>\"}\n");
  CurveIndex index(log);
  index.read_more(1 << 20);
  EXPECT_THAT(keys_of(index), Contains("gpu/1/power_w"));
  ASSERT_EQ(index.events().size(), 3U);
  EXPECT_EQ(index.events()[0].step, 2);
  EXPECT_EQ(index.events()[0].text, "GPU 1 throttled by heat");
  EXPECT_EQ(index.events()[1].step, 5);
  EXPECT_EQ(index.events()[2].text, "rolled <b>back</b>");
}

TEST(CurveIndex, OfHostileKeysIsBounded) {
  const TemporaryFolder folder;
  const fs::path log = folder.path() / "log";
  for (int i = 0; i < 3000; ++i)
    append(log, fmt::format("{{\"current_steps\":{0},\"key{0}\":1,\"event\":\"{1}\"}}\n", i,
                            std::string(5000, 'e')));
  CurveIndex index(log);
  while (index.read_more(1)) continue;
  EXPECT_LE(keys_of(index).size(), 256U);
  EXPECT_LE(index.events().size(), 2000U);
  EXPECT_LT(index.memory_bytes(), 4 << 20);
}

TEST(CurveIndex, OfAMillionLinesFitsIntoLittleMemory) {
  const TemporaryFolder folder;
  const fs::path log = folder.path() / "log";
  std::string text;
  for (int64_t step = 1; step <= 1'000'000; ++step) text += line_of(step);
  write_file_atomically(log, text);
  const int64_t before = peak_rss_bytes();
  CurveIndex index(log);
  while (index.read_more(4 << 20)) continue;
  EXPECT_LT(index.memory_bytes(), 1 << 20);
  EXPECT_LT(peak_rss_bytes() - before, 16 << 20);
  const std::vector<CurveBucket> curve = curve_of(index, "loss", {}, 400);
  EXPECT_LE(curve.size(), 400U);
  EXPECT_EQ(curve.back().last_step, 1'000'000);
  const std::vector<CurveBucket> part = curve_of(index, "loss", {500'000, 500'099}, 400);
  ASSERT_EQ(part.size(), 100U);
  EXPECT_FLOAT_EQ(part[7].mean, static_cast<float>(loss_at(500'007)));
}

}  // namespace
}  // namespace hearth::ui
