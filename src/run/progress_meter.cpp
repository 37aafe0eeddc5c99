#include "run/progress_meter.h"

#include <algorithm>

#include "base/process.h"
#include "io/run_log.h"
#include "run/device_rates.h"

namespace hearth::run {
namespace {

/// Weight of the previous session's step time in the estimate of the remaining time: it counts like this
/// number of measured steps.
constexpr double kEarlierSteps = 100;
/// The step time of the previous session is the mean over this number of its last steps.
constexpr size_t kMeasuredSteps = 100;

}  // namespace

void ProgressMeter::start() { started_seconds_ = process_seconds(); }

double ProgressMeter::session_seconds() const { return process_seconds() - started_seconds_; }

void ProgressMeter::read_earlier_sessions(const fs::path& log) {
  const std::vector<io::CurvePoint> times = io::read_curve(log, "elapsed_time");
  if (times.empty()) return;
  const io::CurvePoint& last = times.back();
  const io::CurvePoint& first = times[times.size() - std::min(times.size(), kMeasuredSteps)];
  earlier_seconds_ = last.value;
  if (last.step > first.step)
    earlier_seconds_per_step_ = (last.value - first.value) / static_cast<double>(last.step - first.step);
}

void ProgressMeter::count_step(int64_t num_samples) {
  ++session_steps_;
  session_samples_ += num_samples;
}

Progress ProgressMeter::progress_after(const StepReport& step, const engine::Engine& engine, const char* unit,
                                       int num_workers) const {
  const double elapsed = session_seconds();
  const double training = std::max(1e-3, elapsed - evaluation_seconds_);
  const auto done = static_cast<double>(session_steps_);
  // The first steps of a session are slow, so the estimate also uses the previous session's step time.
  const double earlier = earlier_seconds_per_step_ > 0 ? kEarlierSteps : 0;
  const double seconds_per_step = (earlier * earlier_seconds_per_step_ + elapsed) / (earlier + done);
  const engine::Plan& plan = engine.plan();
  const gpu::DeviceInfo* gpu = engine.device().gpu;
  const double flops = plan.model_flops() * done / training;
  return {.step = step.step,
          .total_steps = step.total_steps,
          .loss = step.loss,
          .learning_rate = step.learning_rate,
          .grad_norm = step.grad_norm,
          .samples_per_second = static_cast<double>(session_samples_) / training,
          .unit = unit,
          .tflops = flops * 1e-12,
          .memory_bytes = gpu != nullptr ? plan.gpu_bytes() : plan.memory_bytes(),
          .device_bytes = gpu != nullptr ? gpu->memory_bytes : total_memory_bytes(),
          .mfu = fraction_of_peak(flops / num_workers, gpu, plan.options.precision,
                                  plan.options.matmul_precision),
          .eta_seconds = seconds_per_step * static_cast<double>(step.total_steps - step.step)};
}

}  // namespace hearth::run
