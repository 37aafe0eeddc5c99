#pragma once

#include "base/path.h"
#include "cli/output.h"

namespace hearth::cli {

/// Returns the progress of a run, read from the end of its log, with the keys run, step, total_steps, loss,
/// seconds, seconds_per_step, age_seconds (time since the last line), evaluation (metrics by name) and event.
/// Numbers that are not in the log are 0, and texts are empty.
Json run_status(const fs::path& run);

}  // namespace hearth::cli
