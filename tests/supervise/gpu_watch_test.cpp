#include "supervise/gpu_watch.h"

#include <gmock/gmock.h>

#include <cmath>
#include <thread>

#include "supervise/supervisor.h"
#include "supervise/worker.h"
#include "system/planted_gpu.h"

namespace hearth::supervise {
namespace {

using system::PlantedGpu;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using namespace std::chrono_literals;

TEST(GpuBoard, EveryRankNamesItsGpu) {
  const GpuBoard board;
  EXPECT_THAT(board.used(2), IsEmpty());
  board.use(1, "0000:06:00.0");
  EXPECT_THAT(board.used(2), IsEmpty());
  board.use(0, "0000:03:00.0");
  EXPECT_THAT(board.used(2), ElementsAre("0000:03:00.0", "0000:06:00.0"));
  EXPECT_THAT(board.used(1), ElementsAre("0000:03:00.0"));
  board.clear();
  EXPECT_THAT(board.used(1), IsEmpty());
}

TEST(GpuBoard, IsReadWholeWhileItIsWritten) {
  const GpuBoard board;
  const Worker writer([&] {
    for (int64_t i = 1;; ++i) {
      GpuState state{.number = i, .idle_share = static_cast<double>(i)};
      state.num_gpus = 64;
      for (system::GpuReading& reading : state.readings) reading.pcie_errors = i;
      board.publish(state);
    }
    return 0;
  });
  while (board.read().number == 0) std::this_thread::yield();
  for (int k = 0; k < 2000; ++k) {
    const GpuState state = board.read();
    ASSERT_EQ(state.idle_share, static_cast<double>(state.number));
    for (const system::GpuReading& reading : state.gpus()) ASSERT_EQ(reading.pcie_errors, state.number);
  }
}

class Watched : public testing::Test {
 protected:
  SupervisorOptions options() {
    return {.say = [this](const std::string& text) { said_.push_back(text); },
            .watch_gpus = true,
            .sensors = {.root = planted_.root(), .seconds = 0.01}};
  }
  PlantedGpu planted_;
  std::vector<std::string> said_;
};

/// Waits in a worker; false after a minute.
bool wait_for(const std::function<bool()>& end) {
  const auto until = std::chrono::steady_clock::now() + 1min;
  while (!end() && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(2ms);
  return end();
}

TEST_F(Watched, AWorkerSeesTheSensorsOfItsGpu) {
  const auto work = [](const WorkerContext& worker_context) {
    worker_context.gpus->use(worker_context.rank, PlantedGpu::kAddress);
    if (!wait_for([&] { return worker_context.gpus->read().number > 0; })) return kMistake;
    const GpuState state = worker_context.gpus->read();
    const bool right = state.num_gpus == 1 && state.gpus()[0].junction == 83 && state.gpus()[0].power == 290;
    return right && state.idle_share == 0 && !state.paused ? kDone : kMistake;
  };
  EXPECT_EQ(supervise(work, options()), kDone);
  EXPECT_THAT(said_, IsEmpty());
}

TEST_F(Watched, AHotGpuAsksForGapsAndThenForAPause) {
  planted_.plant_hwmon("temp2_input", "111000\n");
  const auto work = [](const WorkerContext& worker_context) {
    worker_context.gpus->use(worker_context.rank, PlantedGpu::kAddress);
    worker_context.gpus->set_period(0.01);
    const bool slows = wait_for([&] { return worker_context.gpus->idle_share() > 0; });
    const bool pauses = wait_for([&] { return worker_context.gpus->paused(); });
    const std::string reason = worker_context.gpus->read().reason.data();
    return slows && pauses && reason == "GPU 0 (0000:03:00.0) has 111 C, limit 105 C" ? kDone : kMistake;
  };
  EXPECT_EQ(supervise(work, options()), kDone);
  ASSERT_THAT(said_, testing::SizeIs(1));
  EXPECT_THAT(said_[0], HasSubstr("slowing down by gaps between steps, "));
  EXPECT_THAT(said_[0], HasSubstr("% of the time: GPU 0 (0000:03:00.0) has 111 C, limit 105 C"));
}

TEST_F(Watched, TheRecipesLimitCounts) {
  SupervisorOptions made = options();
  made.limits.limit = 80;
  const auto work = [](const WorkerContext& worker_context) {
    worker_context.gpus->use(worker_context.rank, PlantedGpu::kAddress);
    return wait_for([&] { return worker_context.gpus->idle_share() > 0; }) ? kDone : kMistake;
  };
  EXPECT_EQ(supervise(work, made), kDone);
}

TEST_F(Watched, SensorsThatGoHoldNobodyBack) {
  planted_.plant_hwmon("temp2_input", "111000\n");
  const auto work = [&](const WorkerContext& worker_context) {
    worker_context.gpus->use(worker_context.rank, PlantedGpu::kAddress);
    if (!wait_for([&] { return worker_context.gpus->paused(); })) return kMistake;
    fs::remove_all(planted_.hwmon());
    return wait_for([&] { return worker_context.gpus->idle_share() == 0 && !worker_context.gpus->paused(); })
               ? kDone
               : kMistake;
  };
  EXPECT_EQ(supervise(work, options()), kDone);
  EXPECT_THAT(said_, ElementsAre(HasSubstr("slowing down by gaps"),
                                 HasSubstr("the GPUs' sensors no longer respond")));
}

TEST_F(Watched, ANewAttemptNamesItsGpusAnew) {
  const auto work = [](const WorkerContext& worker_context) {
    if (worker_context.attempt == 1) {
      worker_context.gpus->use(worker_context.rank, "0000:99:00.0");
      return 71;
    }
    if (!worker_context.gpus->used(1).empty()) return kMistake;
    worker_context.gpus->use(worker_context.rank, PlantedGpu::kAddress);
    return wait_for([&] { return worker_context.gpus->read().number > 0; }) ? kDone : kMistake;
  };
  EXPECT_EQ(supervise(work, options()), kDone);
}

TEST_F(Watched, NothingIsToldOfAGpuWithoutSensors) {
  const auto work = [](const WorkerContext& worker_context) {
    worker_context.gpus->use(worker_context.rank, "emu:00:00.0");
    std::this_thread::sleep_for(500ms);
    return worker_context.gpus->read().number == 0 ? kDone : kMistake;
  };
  EXPECT_EQ(supervise(work, options()), kDone);
  EXPECT_THAT(said_, IsEmpty());
}

}  // namespace
}  // namespace hearth::supervise
