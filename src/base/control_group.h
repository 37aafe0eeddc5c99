#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace hearth {

/// Returns the lowest memory limit, in bytes, of this process's control group (cgroup v1 or v2) and its
/// parents; nullopt if there is none. `root`: root of the file system, replaced in tests.
std::optional<int64_t> memory_limit(const std::filesystem::path& root = "/");

/// Returns the number of bytes that this process can still allocate before it reaches a memory limit of its
/// control groups. File cache that the kernel can drop counts as free. nullopt if there is no limit.
std::optional<int64_t> memory_below_limit(const std::filesystem::path& root = "/");

/// Returns the number of processes that the kernel's OOM killer has ended in this process's control group, or
/// on the machine if the group has no counter; 0 if the kernel does not count them.
int64_t num_memory_kills(const std::filesystem::path& root = "/");

}  // namespace hearth
