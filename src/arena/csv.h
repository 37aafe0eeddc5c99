#pragma once

#include <filesystem>
#include <string>

#include "arena/problem.h"

namespace hearth::arena {

/// Reads lines `id,lower,upper,size` under a header naming them (MiniMalloc's format); UserError with
/// FILE:LINE.
Problem read_csv(const std::filesystem::path& path);
/// The same lines with a column `offset`.
std::string write_csv(const Problem& problem, const Solution& solution);

}  // namespace hearth::arena
