#pragma once

#include <filesystem>

namespace hearth {

/// Short name for std::filesystem.
namespace fs = std::filesystem;

}  // namespace hearth
