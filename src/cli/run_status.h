#pragma once

#include "base/path.h"
#include "cli/output.h"

namespace hearth::cli {

/// Returns the progress of a run, from the end of its log: run, step, total_steps, loss, seconds,
/// seconds_per_step, age_seconds (since the last line), evaluation (metrics by name) and event. Numbers are 0
/// and texts are empty if nothing is logged.
Json run_status(const fs::path& run);

}  // namespace hearth::cli
