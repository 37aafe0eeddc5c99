#pragma once

#include "tasks/job.h"

namespace hearth::run {

/// Writes an HTML page with the first training samples of a run, as the model sees them. Throws a UserError
/// if the data cannot be read or shown, or the file cannot be written.
void write_preview(const tasks::Job& job, const fs::path& file);

}  // namespace hearth::run
