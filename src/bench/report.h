#pragma once

#include <functional>
#include <string>

#include "bench/report_job.h"

namespace hearth::bench {

/// Runs a job and writes its files to request.out: perf_MODEL.csv (or primus_perf_output.csv),
/// MODEL-MODE.html and .log, for fine-tuning MODEL-MODE.txt in torchtune's format, for images
/// runs_summary.csv. `say` receives each line of the log and finally the result.
void run_report(const ReportRequest& request, const std::function<void(const std::string&)>& say);

}  // namespace hearth::bench
