#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace hearth {

/// Lowest memory limit, in bytes, of this process's control group and the groups above it (version 1 or 2 of
/// the kernel's interface); nothing without a limit. `root`: of the file system, another one in tests.
std::optional<int64_t> memory_limit(const std::filesystem::path& root = "/");

/// Bytes that these limits leave to this process, file cache that the kernel can drop included.
std::optional<int64_t> memory_below_limit(const std::filesystem::path& root = "/");

/// Number of processes of this process's control group, else of the machine, that the kernel has killed
/// because memory ran out; 0 where the kernel does not count them.
int64_t num_memory_kills(const std::filesystem::path& root = "/");

}  // namespace hearth
