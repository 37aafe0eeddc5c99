#pragma once

#include <functional>
#include <string>

#include "bench/report_result.h"

namespace hearth::bench {

/// Runs a job and writes its files to the folder request.out: perf_MODEL.csv (or primus_perf_output.csv),
/// MODEL-MODE.html and MODEL-MODE.log; for fine-tuning of a language model also MODEL-MODE.txt, a log in
/// torchtune's format; for image models also runs_summary.csv. `say` receives each line of the log and
/// finally the result as text. Returns the result of rank 0.
ReportResult run_report(const ReportRequest& request, const std::function<void(const std::string&)>& say);

}  // namespace hearth::bench
