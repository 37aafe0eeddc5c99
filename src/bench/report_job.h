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

/// Arguments of `hearth bench report`, with the options of AMD's training benchmark.
struct ReportRequest {
  std::string mode = "pretrain";  ///< or posttrain (denoisers), finetune_fw, finetune_lora, finetune_qlora
  std::string model;              ///< one of report_models(), or a folder with config.json
  std::string precision = "BF16";
  int64_t length = 0;  ///< tokens per row, or image size; 0, here and below: the benchmark's value
  int64_t batch = 0;   ///< rows per device
  int64_t steps = 0;
  int num_devices = 1;
  BenchMachine machine;
  int64_t memory_bytes = 0;  ///< limit of a device's memory; 0: the free memory
  std::string model_gpu;     ///< GPU whose predicted figures are shown; empty: the GPU that trains
  bool primus = false;       ///< true to write the result file in Primus' format
  fs::path out = ".";
};

/// A validated request with its model and shape.
struct ReportJob {
  std::string model;  ///< name used in file names
  std::string_view mode;
  bool is_text = false;
  int64_t steps = 0;
  int num_devices = 1;
  BenchMachine machine;
  /// The requested case; fit_job() may reduce its batch and length.
  BenchCase requested;
  int64_t pixels_per_length = 1;                         ///< for latents: pixels per latent along each axis
  std::shared_ptr<const models::DecoderConfig> decoder;  ///< owner of asked.decoder

  /// True for fine-tuning and post-training.
  bool is_finetuning() const { return mode != "pretrain"; }
  /// Min. batch: batch norm over a single value has no variance.
  int64_t min_batch() const { return is_text || pixels_per_length > 1 ? 1 : 2; }
  /// Describes a case of this job: "batch 4 of 8192 tokens".
  std::string shape_of(const BenchCase& bench) const;
};

/// Validates a request. Throws a UserError for an unknown mode, model or precision, or an invalid shape.
ReportJob open_job(const ReportRequest& request);

/// The case that fits a device's memory.
struct ReportFit {
  BenchCase bench;           ///< the case to run
  planner::PlanReport plan;  ///< its plan
  std::string how;           ///< "as it is", or which values are recomputed or offloaded
  /// Plan of the requested case if it does not fit even with recompute and offload.
  std::optional<planner::PlanReport> refused;
};

/// Returns the largest batch up to the requested one that fits `memory_bytes`, with recompute and offload if
/// needed. If not even a batch of 1 fits, halves the row length repeatedly. Throws a UserError with the plan
/// if nothing fits.
ReportFit fit_job(const ReportJob& job, int64_t memory_bytes);

}  // namespace hearth::bench
