#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace hearth {

/// Bytes that this process can still touch: what the kernel says is available (/proc/meminfo), or what is
/// left of the control group's limit if that is less. A very large number where neither can be read.
int64_t available_memory_bytes();

/// Of this machine, in use or not.
int64_t total_memory_bytes();

/// Most bytes this process has had resident.
int64_t peak_rss_bytes();

/// Whether a process of that number runs.
bool process_runs(const std::string& number);

/// Seconds since this process started. Allocates at the first call only.
double process_seconds();

/// $XDG_CACHE_HOME/hearth or ~/.cache/hearth; empty where the user has neither.
std::filesystem::path user_cache_folder();

}  // namespace hearth
