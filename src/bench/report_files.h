#pragma once

#include "bench/report_result.h"

namespace hearth::bench {

/// A row of perf_MODEL.csv.
struct ReportMetric {
  std::string_view name;
  std::string value;  ///< a number; empty: unknown
};

/// Returns the metrics of a job under the names that AMD's benchmark uses for its mode.
std::vector<ReportMetric> metrics_of(const ReportResult& result);
/// Returns the metrics of the last step under the names of extract_primus_perf.py, a script of AMD's Primus.
/// MFU is empty if unknown.
std::vector<ReportMetric> primus_metrics_of(const ReportResult& result);

/// Formats perf_MODEL.csv: model,performance,metric,mode,precision,batch_size,seq_len,device,num_gpus.
std::string to_csv(const ReportResult& result);
/// Formats primus_perf_output.csv: model,performance,metric.
std::string to_primus_csv(const ReportResult& result);
/// Formats runs_summary.csv of an image model. The last row contains the averages avg_fps_gpu and avg_tflops.
std::string to_runs_summary(const ReportResult& result);
/// Formats a step as a line of torchtune's log: memory in GiB, numbers without thousands separators.
std::string to_torchtune_line(const run::Progress& step);
/// Formats the summary that AMD's script prints from a torchtune log.
std::string to_torchtune_summary(const ReportResult& result);
/// Formats "performance: 1234.50 tok_per_s_per_gpu", which madengine parses.
std::string to_performance_line(const ReportResult& result);
/// Formats measured and predicted figures as a text table with two columns.
std::string to_table(const ReportResult& result);

/// Formats a self-contained HTML page with curves, memory by purpose and time by op.
std::string to_page(const ReportResult& result);

}  // namespace hearth::bench
