#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/report_job.h"
#include "run/trainer_events.h"

namespace hearth::bench {

/// Prediction of the cost model for the same work.
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
  /// Logged steps. All rates here are per device.
  std::vector<run::Progress> steps;
  double flops_per_step = 0;        ///< the program's count: half of attention, no gradient of frozen weights
  std::vector<ProfileRow> profile;  ///< of a single worker; empty for several workers
  std::optional<ReportModeled> modeled;
  std::string arena_svg;

  /// Images or tokens per step and device.
  int64_t samples_per_step() const;
  /// Returns the mean of a value over the steps that AMD's benchmark averages: steps 31 to 40 for pretraining
  /// with at least 40 steps, otherwise the last half.
  double mean(double run::Progress::*value) const;
};

}  // namespace hearth::bench
