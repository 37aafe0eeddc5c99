#pragma once

namespace hearth::io {

/// Names of files in a run folder: the report, written when the run ends, and the memory plan as JSON
/// (planner::to_json), written when it starts.
inline constexpr const char* kReportFile = "report.html";
inline constexpr const char* kPlanFile = "plan.json";

}  // namespace hearth::io
