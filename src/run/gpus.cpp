// What the trainer tells of the GPUs, and how it rests where they are hot.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "base/error.h"
#include "run/trainer.h"

namespace hearth::run {
namespace {

using system::GpuReading;
using Clock = std::chrono::steady_clock;

/// Between two beats of a worker that rests.
constexpr std::chrono::milliseconds kBeat{50};
/// A longer gap would leave people wondering, whatever the share.
constexpr double kMostRestSeconds = 120;

struct Quantity {
  const char* name;
  float GpuReading::*value;
};
/// Keys of the log, and tags of TensorBoard.
constexpr Quantity kQuantities[] = {{"edge_c", &GpuReading::edge},
                                    {"junction_c", &GpuReading::junction},
                                    {"memory_c", &GpuReading::memory},
                                    {"power_w", &GpuReading::power},
                                    {"power_limit_w", &GpuReading::power_limit},
                                    {"clock_mhz", &GpuReading::clock},
                                    {"memory_clock_mhz", &GpuReading::memory_clock},
                                    {"fan_rpm", &GpuReading::fan},
                                    {"fan_percent", &GpuReading::fan_percent},
                                    {"busy_percent", &GpuReading::busy}};
struct Count {
  const char* name;
  int64_t GpuReading::*value;
};
constexpr Count kCounts[] = {{"memory_used_bytes", &GpuReading::memory_used_bytes},
                             {"memory_bytes", &GpuReading::memory_bytes},
                             {"pcie_errors", &GpuReading::pcie_errors},
                             {"memory_errors", &GpuReading::memory_errors}};

std::string json_of(const GpuReading& reading, double idle_share) {
  std::string json = fmt::format("{{\"address\":\"{}\"", reading.name());
  for (const auto& [name, value] : kQuantities) {
    if (std::isfinite(reading.*value)) json += fmt::format(",\"{}\":{:.5g}", name, reading.*value);
  }
  for (const auto& [name, value] : kCounts) {
    if (reading.*value >= 0) json += fmt::format(",\"{}\":{}", name, reading.*value);
  }
  if (reading.throttle != 0)
    json += fmt::format(",\"throttle\":\"{}\"", system::throttle_words(reading.throttle));
  return json + fmt::format(",\"idle_percent\":{:.3g}}}", 100 * idle_share);
}

}  // namespace

double Trainer::rest_seconds(double step_seconds) const {
  if (events_.gpus == nullptr || !leads()) return 0;
  const double share = events_.gpus->idle_share();
  const double seconds = std::min(kMostRestSeconds, step_seconds * share / (1 - share));
  events_.gpus->tell_period(step_seconds + seconds);
  return seconds;
}

void Trainer::rest(double seconds) const {
  if (seconds <= 0) return;
  const auto until =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  const distributed::Phase before = events_.heartbeat.turn_to(distributed::Phase::resting);
  for (auto now = Clock::now(); now < until && (events_.stop == nullptr || !*events_.stop);
       now = Clock::now()) {
    std::this_thread::sleep_for(std::min<Clock::duration>(kBeat, until - now));
    events_.heartbeat.beat();
  }
  events_.heartbeat.turn_to(before);
}

void Trainer::wait_while_hot(const engine::StepResult& result) {
  engine_->gather_states();
  const bool saves = std::isfinite(result.loss);
  const auto say = [&](const std::string& text) {
    if (!leads()) return;
    events_.message(text);
    log_->event(state_.step, text);
  };
  if (leads() && saves) {
    save_checkpoint();
    checkpoints_->flush();
  }
  say(
      fmt::format("paused after step {}: {}, and gaps between steps do not cool it{}; training continues by "
                  "itself when it is cool",
                  state_.step, events_.gpus->read().reason.data(), saves ? "; a checkpoint is saved" : ""));
  const auto began = Clock::now();
  while (events_.gpus->paused() && (events_.stop == nullptr || !*events_.stop))
    rest(std::chrono::duration<double>(kBeat).count());
  say(fmt::format("continued after a pause of {:.0f} s: {}",
                  std::chrono::duration<double>(Clock::now() - began).count(), gpu_text()));
}

std::string Trainer::take_gpu_line() {
  if (events_.gpus == nullptr) return "";
  const supervise::GpuState state = events_.gpus->read();
  if (state.number == logged_sample_) return "";
  logged_sample_ = state.number;
  std::string json;
  for (const GpuReading& reading : state.gpus())
    json += (json.empty() ? "[" : ",") + json_of(reading, state.idle_share);
  return json.empty() ? "" : json + "]";
}

void Trainer::log_gpus() {
  if (events_.gpus == nullptr) return;
  const supervise::GpuState state = events_.gpus->read();
  if (state.number == 0) return;
  for (size_t i = 0; i < state.num_gpus; ++i) {
    for (const auto& [name, value] : kQuantities) {
      const float number = state.readings[i].*value;
      if (std::isfinite(number))
        event_file_->add_scalar(state_.step, fmt::format("gpu{}/{}", i, name), number);
    }
  }
  event_file_->add_scalar(state_.step, "gpu/idle_share", static_cast<float>(state.idle_share));
}

/// Of several GPUs that of the hottest one.
std::string Trainer::gpu_text() const {
  if (events_.gpus == nullptr) return "";
  const supervise::GpuState state = events_.gpus->read();
  if (state.number == 0 || state.num_gpus == 0) return "";
  const auto gpus = state.gpus();
  const auto heat = [](const GpuReading& reading) {
    return std::isfinite(reading.hottest()) ? reading.hottest() : -INFINITY;
  };
  std::string text = system::short_text(*std::ranges::max_element(gpus, {}, heat));
  if (state.idle_share > 0) text += fmt::format(" idle {:.0f}%", 100 * state.idle_share);
  return text;
}

std::vector<io::Chart> Trainer::gpu_charts(const fs::path& log) const {
  constexpr const char* kColors[] = {"#e53e3e", "#3182ce", "#38a169", "#805ad5",
                                     "#dd6b20", "#319795", "#d53f8c", "#718096"};
  struct Line {
    size_t chart;
    const char* key;
    const char* name;
  };
  constexpr Line kLines[] = {{0, "junction_c", "junction"},
                             {0, "edge_c", "edge"},
                             {0, "memory_c", "memory"},
                             {1, "power_w", "power"},
                             {3, "idle_percent", "gaps between steps"},
                             {2, "clock_mhz", "clock"}};
  std::vector<io::Chart> charts = {
      {"Temperature (C)", {}}, {"Power (W)", {}}, {"Clock (MHz)", {}}, {"Idle time (%)", {}}};
  std::vector<std::string> keys;
  for (int gpu = 0; gpu < num_workers(); ++gpu)
    for (const Line& line : kLines) keys.push_back(fmt::format("/gpu/{}/{}", gpu, line.key));
  std::vector<std::vector<io::CurvePoint>> curves = io::read_curves(log, keys);
  for (size_t i = 0; i < curves.size(); ++i) {
    if (curves[i].empty()) continue;
    const Line& line = kLines[i % std::size(kLines)];
    std::vector<io::Series>& series = charts[line.chart].series;
    series.push_back(
        {.name = num_workers() == 1 ? line.name : fmt::format("{} {}", i / std::size(kLines), line.name),
         .color = kColors[series.size() % std::size(kColors)],
         .points = std::move(curves[i])});
  }
  std::erase_if(charts, [](const io::Chart& chart) { return chart.series.empty(); });
  return charts;
}

}  // namespace hearth::run
