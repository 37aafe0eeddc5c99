#pragma once

#include "bench/report_result.h"

namespace hearth::bench {

/// A line of perf_MODEL.csv.
struct ReportMetric {
  std::string_view name;
  std::string value;  ///< a number; empty: not known
};

/// The metrics of a mode under the names of AMD's benchmark.
std::vector<ReportMetric> metrics_of(const ReportResult& result);
/// The same as Primus' extract_primus_perf.py names them: the last step's. MFU is empty where it is not
/// known.
std::vector<ReportMetric> primus_metrics_of(const ReportResult& result);

/// perf_MODEL.csv: model,performance,metric,mode,precision,batch_size,seq_len,device,num_gpus.
std::string to_csv(const ReportResult& result);
/// model,performance,metric.
std::string to_primus_csv(const ReportResult& result);
/// Of images, whose last row has avg_fps_gpu and avg_tflops.
std::string to_runs_summary(const ReportResult& result);
/// A step as torchtune logs it: memory in GiB, numbers without commas.
std::string to_torchtune_line(const run::Progress& step);
/// What AMD's script for torchtune prints of such a log.
std::string to_torchtune_summary(const ReportResult& result);
/// "performance: 1234.50 tok_per_s_per_gpu", which madengine reads.
std::string to_performance_line(const ReportResult& result);
/// Measured and modeled figures side by side, for people.
std::string to_table(const ReportResult& result);

/// One self-contained page with curves, memory by purpose and time by op.
std::string to_page(const ReportResult& result);

}  // namespace hearth::bench
