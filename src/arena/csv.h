#pragma once

#include <filesystem>
#include <string>

#include "arena/problem.h"

namespace hearth::arena {

/// Reads a problem in MiniMalloc's CSV format: a header `id,lower,upper,size`, then one line per buffer.
/// UserError with FILE:LINE.
Problem read_csv(const std::filesystem::path& path);
/// Returns the buffers as CSV with an additional column `offset`.
std::string write_csv(const Problem& problem, const Solution& solution);

}  // namespace hearth::arena
