#include <fmt/format.h>

#include <cmath>

#include "io/event_file.h"
#include "run/gpu_readings.h"
#include "run/run_sink.h"

namespace hearth::run {
namespace {

class TensorBoardSink : public RunSink {
 public:
  /// `first_step`: first step of this session; see io::EventFile.
  TensorBoardSink(const fs::path& folder, int64_t first_step) : file_(folder, first_step) {}

  void step(const StepReport& r) override {
    if (r.progress == nullptr) return;
    add(r.step, "train/loss", r.loss);
    add(r.step, "train/learning_rate", r.learning_rate);
    add(r.step, "train/grad_norm", r.grad_norm);
    if (r.gpus != nullptr) add_readings(r.step, *r.gpus);
  }

  void evaluation(const EvaluationReport& r) override {
    add(r.step, "eval/loss", r.loss);
    for (const auto& [name, value] : r.metrics) add(r.step, fmt::format("eval/{}", name), value);
    for (const ImageReport& image : r.images)
      file_.add_image(r.step, fmt::format("samples/{}", image.name), image.size, image.png);
  }

 private:
  void add(int64_t step, std::string_view tag, double value) {
    file_.add_scalar(step, tag, static_cast<float>(value));
  }
  void add_readings(int64_t step, const supervise::GpuState& state) {
    for (size_t i = 0; i < state.num_gpus; ++i) {
      for (const auto& [name, value] : kGpuQuantities) {
        const float number = state.readings[i].*value;
        if (std::isfinite(number)) add(step, fmt::format("gpu{}/{}", i, name), number);
      }
    }
    add(step, "gpu/idle_share", state.idle_share);
  }

  io::EventFile file_;
};

}  // namespace

std::unique_ptr<RunSink> open_tensorboard(const SinkContext& context) {
  return std::make_unique<TensorBoardSink>(context.folder, context.last_step + 1);
}

}  // namespace hearth::run
