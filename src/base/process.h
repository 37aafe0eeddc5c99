#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace hearth {

/// Returns the number of bytes that this process can still allocate: MemAvailable of /proc/meminfo, or less
/// if the memory limit of its control group is closer; the maximum of int64_t if neither can be read.
int64_t available_memory_bytes();

/// Returns the bytes of physical memory of this machine.
int64_t total_memory_bytes();

/// Returns the maximum resident set size of this process, in bytes.
int64_t peak_rss_bytes();

/// Returns true if a process with this id (decimal text) exists.
bool process_runs(const std::string& number);

/// Returns the seconds since this process started. Does not allocate memory, except in the first call.
double process_seconds();

/// Returns $XDG_CACHE_HOME/hearth or ~/.cache/hearth; empty if neither variable is set.
std::filesystem::path user_cache_folder();

}  // namespace hearth
