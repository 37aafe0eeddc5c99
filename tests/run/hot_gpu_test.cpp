// Runs on an emulated GPU whose sensors are files: gaps and pauses change no bit.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

#include "engine/gpu_course.h"
#include "run/from_recipe.h"
#include "run/launch.h"
#include "supervise/worker.h"
#include "system/planted_gpu.h"

namespace hearth::run {
namespace {

using system::PlantedGpu;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using namespace std::chrono_literals;

class Silent : public Reporter {
 public:
  void progress(const Progress&) override {}
  void message(const std::string&) override {}
  void warn(const std::string&) override {}
};

class SlowHotGpu : public engine::GpuTraining {
 protected:
  /// What `run` of the launched run's folder says within two minutes is true; then waits for its end.
  void train(const fs::path& out, const std::vector<std::string>& overrides,
             const std::function<bool(const fs::path&)>& meanwhile) {
    std::vector<std::string> all = {"device=emulated",   "self_test=never",   "model=mlp",
                                    "model.hidden=[32]", "data=shapes",       "data.image_size=16",
                                    "data.count=64",     "data.val_count=16", "train.batch=16",
                                    "train.steps=120",   "train.log_every=1", "data.threads=1"};
    all.insert(all.end(), overrides.begin(), overrides.end());
    LaunchOptions options{.job = prepare_run(parse_recipe("", "a test", all), out, false).job,
                          .out = out.string(),
                          .sensors = {.root = planted_.root(), .seconds = 0.02},
                          .governor = {.pause_after_seconds = 0.05, .min_pause_seconds = 0.1},
                          .open_reporter = [](distributed::Heartbeat) { return std::make_unique<Silent>(); },
                          .print_error = [](const ExitStatus& ending) { return ending.status; }};
    supervise::Worker run([&] { return launch(options); });
    const auto until = std::chrono::steady_clock::now() + 2min;
    while (!meanwhile(out) && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(10ms);
    EXPECT_TRUE(meanwhile(out));
    for (run.look(); run.running() && std::chrono::steady_clock::now() < until; run.look())
      std::this_thread::sleep_for(10ms);
    EXPECT_EQ(run.exit_status(), 0);
  }
  static std::string log(const fs::path& out) {
    const fs::path path = out / "trainer_log.jsonl";
    return fs::exists(path) ? read_file(path) : "";
  }
  static std::vector<double> losses(const fs::path& out) {
    std::vector<double> all;
    for (const io::CurvePoint& point : io::read_curve(out / "trainer_log.jsonl", "loss"))
      all.push_back(point.value);
    return all;
  }
  static std::string events(const fs::path& out) {
    for (const fs::path& path : list_folder(out))
      if (path.filename().string().starts_with("events.")) return read_file(path);
    return "";
  }

  PlantedGpu planted_{"emu:00:00.0"};
  TemporaryFolder folder_;
};

TEST_F(SlowHotGpu, PausesContinuesByItselfAndKeepsTheBits) {
  const fs::path hot = folder_.path() / "hot", cool = folder_.path() / "cool";
  train(cool, {}, [](const fs::path& out) { return log(out).find("\"gpu\":") != std::string::npos; });
  EXPECT_THAT(log(cool), AllOf(HasSubstr("\"address\":\"emu:00:00.0\""), HasSubstr("\"junction_c\":83,"),
                               HasSubstr("\"power_w\":290,"), Not(HasSubstr("paused"))));
  EXPECT_THAT(read_file(cool / "report.html"),
              AllOf(HasSubstr("Temperature (C)"), HasSubstr("Power (W)"), HasSubstr("Clock (MHz)")));
  EXPECT_THAT(events(cool), AllOf(HasSubstr("gpu0/junction_c"), HasSubstr("gpu/idle_share")));

  planted_.plant_hwmon("temp2_input", "111000\n");
  train(hot, {}, [&](const fs::path& out) {
    if (log(out).find("paused after step") == std::string::npos) return false;
    planted_.plant_hwmon("temp2_input", "60000\n");
    return true;
  });
  EXPECT_THAT(log(hot), AllOf(HasSubstr("GPU 0 (emu:00:00.0) has 111 C, limit 105 C"),
                              HasSubstr("; a checkpoint is saved; training continues automatically"),
                              HasSubstr("continued after a pause of ")));
  EXPECT_EQ(losses(hot), losses(cool));
  EXPECT_EQ(losses(hot).size(), 120U);
  EXPECT_EQ(read_file(hot / "model.safetensors"), read_file(cool / "model.safetensors"));
}

TEST_F(SlowHotGpu, APowerLimitMakesGapsForBothWorkers) {
  const fs::path alone = folder_.path() / "alone", two = folder_.path() / "two";
  train(alone, {"train.accumulate=2", "train.steps=48"}, [](const fs::path&) { return true; });
  const auto is_slowed = [](const fs::path& out) {
    const auto shares = io::read_curve(out / "trainer_log.jsonl", "/gpu/1/idle_percent");
    return std::ranges::any_of(shares, [](const io::CurvePoint& point) { return point.value > 0; });
  };
  emu::gpus() = {{}, {}};
  train(two, {"train.accumulate=2", "train.steps=48", "power.limit=150", "devices=2"}, is_slowed);
  EXPECT_EQ(losses(two), losses(alone));
}

}  // namespace
}  // namespace hearth::run
