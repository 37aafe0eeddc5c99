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

/// Arguments of `hearth bench report`, which accepts the options of AMD's training benchmark.
struct ReportRequest {
  /// pretrain, posttrain (denoisers), finetune_fw (all weights), finetune_lora or finetune_qlora.
  std::string mode = "pretrain";
  std::string model;  ///< one of report_models(), or a folder with config.json
  std::string precision = "BF16";
  /// Tokens per row, or image side in pixels. 0, here and in batch and steps: the value of AMD's benchmark.
  int64_t length = 0;
  int64_t batch = 0;  ///< rows per device
  int64_t steps = 0;
  int num_devices = 1;
  BenchMachine machine;
  int64_t memory_bytes = 0;  ///< memory limit of each device in bytes; 0: its free memory
  /// GPU for which the cost model's prediction is shown; empty: the GPU that trains.
  std::string model_gpu;
  bool primus = false;  ///< true to write the results as primus_perf_output.csv
  fs::path out = ".";
};

/// A validated request with its model and shape.
struct ReportJob {
  std::string model;  ///< name of the model for file names
  std::string_view mode;
  bool is_text = false;
  int64_t steps = 0;
  int num_devices = 1;
  BenchMachine machine;
  /// The requested case. fit_job() may reduce its batch and length.
  BenchCase requested;
  int64_t pixels_per_length =
      1;  ///< for latents: number of image pixels per latent along each axis; otherwise 1
  /// Keeps alive the config that requested.decoder points to.
  std::shared_ptr<const models::DecoderConfig> decoder;

  /// True for fine-tuning and post-training.
  bool is_finetuning() const { return mode != "pretrain"; }
  /// Returns the min batch. For image models it is 2, because batch norm over a single value has no variance.
  int64_t min_batch() const { return is_text || pixels_per_length > 1 ? 1 : 2; }
  /// Describes a case of this job: "batch 4 of 8192 tokens".
  std::string shape_of(const BenchCase& bench) const;
};

/// Validates a request. Throws a UserError for an unknown mode, model or precision, or an invalid shape.
ReportJob open_job(const ReportRequest& request);

/// The case that is run because it fits the memory of each device.
struct ReportFit {
  BenchCase bench;           ///< the case to run
  planner::PlanReport plan;  ///< memory plan of `bench`
  std::string how;           ///< words for messages: "as it is", or which values are recomputed or offloaded
  /// Plan of the requested case if it does not fit even with recompute and offload.
  std::optional<planner::PlanReport> refused;
};

/// Finds the case to run: the largest batch up to the requested one that fits `memory_bytes`, with recompute
/// and offload if needed. If not even the min batch fits, halves the row length repeatedly. Throws a
/// UserError with the plan if nothing fits.
ReportFit fit_job(const ReportJob& job, int64_t memory_bytes);

}  // namespace hearth::bench
