#pragma once

#include "tasks/job.h"

namespace hearth::run {

/// Writes an HTML page with at most 24 training rows of a recipe, as the model sees them
/// (Task::show_samples). Throws a UserError if the data cannot be read or shown, or the file cannot be
/// written.
void write_preview(const tasks::Job& job, const fs::path& file);

}  // namespace hearth::run
