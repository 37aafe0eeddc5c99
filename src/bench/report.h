#pragma once

#include <functional>
#include <string>

#include "bench/report_job.h"

namespace hearth::bench {

/// Does the job and writes its files into `out`: perf_MODEL.csv (or primus_perf_output.csv), MODEL-MODE.html
/// and .log, of finetuning MODEL-MODE.txt in torchtune's form, of images runs_summary.csv. Everything
/// that the log gets is said line by line, too, and after it the result.
void run_report(const ReportRequest& request, const std::function<void(const std::string&)>& say);

}  // namespace hearth::bench
