#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/report_job.h"
#include "run/trainer_events.h"

namespace hearth::bench {

/// The cost model's prediction for the job's training step.
struct ReportModeled {
  std::string_view gpu;
  double step_seconds = 0, samples_per_second = 0, flops_per_second = 0, mfu = 0;  ///< per device
};

/// Result of a job.
struct ReportResult {
  ReportJob job;
  ReportFit fit;
  std::string device;  ///< "cpu", or the GPU's name
  bool on_gpu = false;
  /// Logged steps, with rates per device.
  std::vector<run::Progress> steps;
  /// FLOP per step by this program's count: attention without masked positions, no gradients of frozen
  /// weights.
  double flops_per_step = 0;
  std::vector<ProfileRow> profile;  ///< time by op and shape, if there is a single worker; otherwise empty
  std::optional<ReportModeled> modeled;
  std::string arena_svg;
  std::vector<fs::path> files;  ///< files that were written

  /// Returns the number of images or tokens per step and device.
  int64_t samples_per_step() const;
  /// Returns "FP8", "FP32" or "BF16".
  std::string_view precision() const;
  /// Returns the seconds of a step at the mean rate.
  double step_seconds() const;
  /// Returns the mean of a value over the steps that AMD's benchmark averages: steps 31 to 40 for pretraining
  /// with at least 40 steps, otherwise the last half of the steps.
  double mean(double run::Progress::*value) const;
};

}  // namespace hearth::bench
