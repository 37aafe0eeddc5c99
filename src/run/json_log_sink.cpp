#include <fmt/format.h>

#include <cmath>

#include "base/run_files.h"
#include "io/run_log.h"
#include "run/gpu_readings.h"
#include "run/run_sink.h"

namespace hearth::run {
namespace {

using system::GpuReading;

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
  for (const auto& [name, value] : kGpuQuantities) {
    if (std::isfinite(reading.*value)) json += fmt::format(",\"{}\":{:.5g}", name, reading.*value);
  }
  for (const auto& [name, value] : kCounts) {
    if (reading.*value >= 0) json += fmt::format(",\"{}\":{}", name, reading.*value);
  }
  if (reading.throttle != 0)
    json += fmt::format(",\"throttle\":\"{}\"", system::throttle_words(reading.throttle));
  return json + fmt::format(",\"idle_percent\":{:.3g}}}", 100 * idle_share);
}

class JsonLogSink : public RunSink {
 public:
  JsonLogSink(const fs::path& path, int64_t last_step) : log_(path, last_step), file_(path) {}

  void step(const StepReport& r) override {
    log_.step(r.step, r.total_steps, r.loss, r.learning_rate, r.grad_norm, r.elapsed_seconds,
              new_readings(r.gpus));
  }
  void evaluation(const EvaluationReport& r) override {
    log_.evaluation(r.step, r.loss, r.metrics, r.is_best);
  }
  void event(const EventReport& r) override { log_.event(r.step, r.text); }
  void sparsity(const SparsityReport& r) override {
    std::vector<std::pair<std::string, double>> layers;
    for (const engine::LayerSparsity& layer : r.layers) layers.emplace_back(layer.name, layer.fraction());
    log_.sparsity(r.step, r.total(), layers);
  }
  void sync() override { log_.sync(); }
  void check() const override { file_.check(); }

 private:
  /// Returns GPU sensor readings as a JSON array; empty if there are none or they were logged before.
  std::string new_readings(const supervise::GpuState* state) {
    if (state == nullptr || state->number == logged_sample_) return "";
    logged_sample_ = state->number;
    std::string json;
    for (const GpuReading& reading : state->gpus())
      json += (json.empty() ? "[" : ",") + json_of(reading, state->idle_share);
    return json.empty() ? "" : json + "]";
  }

  io::RunLog log_;
  WatchedFile file_;
  int64_t logged_sample_ = 0;  ///< number (GpuState::number) of the last readings in the log
};

}  // namespace

std::unique_ptr<RunSink> open_json_log(const SinkContext& context) {
  return std::make_unique<JsonLogSink>(context.folder / kLogFile, context.last_step);
}

}  // namespace hearth::run
