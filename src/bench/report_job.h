#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "bench/models.h"
#include "bench/report_models.h"
#include "bench/workload.h"
#include "planner/plan_report.h"

namespace hearth::bench {

/// `hearth bench report` as it is typed, with the options of AMD's training benchmark.
struct ReportRequest {
  std::string mode = "pretrain";  ///< or posttrain (of denoisers), finetune_fw, finetune_lora, finetune_qlora
  std::string model;              ///< one of report_models(), or a folder with config.json
  std::string precision = "BF16";
  int64_t length = 0;  ///< tokens of a row, or the side of an image; 0, here and below: the benchmark's own
  int64_t batch = 0;   ///< rows of each device
  int64_t steps = 0;
  int num_devices = 1;
  BenchMachine machine;
  int64_t memory_bytes = 0;  ///< of a device, as if it had no more; 0: what is free
  std::string
      model_gpu;  ///< whose modeled figures stand beside the measured; empty: those of the GPU that trains
  bool primus = false;  ///< the file of results as Primus has it
  fs::path out = ".";
};

/// What is run for a request.
struct ReportJob {
  std::string model;  ///< as files are named by it
  std::string_view mode;
  bool is_text = false;
  int64_t steps = 0;
  int num_devices = 1;
  BenchMachine machine;
  BenchCase asked;
  int64_t pixels_per_length = 1;                         ///< of latents
  std::shared_ptr<const models::DecoderConfig> decoder;  ///< asked.decoder

  bool tunes() const { return mode != "pretrain"; }
  /// Batch norm over a single value has no variance.
  int64_t least_batch() const { return is_text || pixels_per_length > 1 ? 1 : 2; }
  /// "batch 4 of 8192 tokens", for a case of this job.
  std::string shape_of(const BenchCase& bench) const;
};

/// The job of a request; UserError for a mode, model, precision or shape that there is not.
ReportJob open_job(const ReportRequest& request);

/// What of a job fits a device.
struct ReportFit {
  BenchCase bench;           ///< what runs
  planner::PlanReport plan;  ///< of it
  std::string how;           ///< "as it is", or what is computed again or waits in host memory
  /// Of what was asked for, where that fits by no means.
  std::optional<planner::PlanReport> refused;
};

/// The largest batch up to the one asked for, of which one row is as long as was asked for or, where not even
/// a single one fits, half as long and so on. A GPU's values may wait in host memory. UserError with the plan
/// where nothing fits `memory_bytes`.
ReportFit fit_job(const ReportJob& job, int64_t memory_bytes);

}  // namespace hearth::bench
