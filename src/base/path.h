#pragma once

#include <filesystem>

namespace hearth {

/// Paths, and what the standard library does with them.
namespace fs = std::filesystem;

}  // namespace hearth
