#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/report_job.h"
#include "run/trainer_events.h"

namespace hearth::bench {

/// What the model of a GPU says of the same work.
struct ReportModeled {
  std::string_view gpu;
  double step_seconds = 0, samples_per_second = 0, flops_per_second = 0, mfu = 0;  ///< of a device
};

/// What came of a job.
struct ReportResult {
  ReportJob job;
  ReportFit fit;
  std::string device;  ///< "cpu", or the GPU's name
  bool on_gpu = false;
  /// As the log has them; rates, like all here, are a device's.
  std::vector<run::Progress> steps;
  double flops_per_step = 0;  ///< the program's own count: half of attention, no gradient of frozen weights
  std::vector<ProfileRow> profile;  ///< of one worker alone; else empty
  std::optional<ReportModeled> modeled;
  std::string arena_svg;

  int64_t samples_per_step() const;
  /// The mean over the steps that AMD's benchmark takes: of pretraining those from 31 to 40, where there are
  /// so many, else the last half.
  double mean(double run::Progress::*value) const;
};

}  // namespace hearth::bench
