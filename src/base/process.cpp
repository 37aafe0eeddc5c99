#include "base/process.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>

#include "base/control_group.h"

namespace hearth {
namespace {

using Clock = std::chrono::steady_clock;

/// Returns the seconds since this process started, from /proc; 0 if unknown. In a container, /proc/uptime may
/// be that of another machine, so the difference is never negative.
double read_process_seconds() {
  // Read as a stream, because files in /proc report size 0.
  const auto read_line = [](const char* path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
  };
  // Field 22 of /proc/self/stat: time when the process started, in ticks since boot.
  const std::string stat = read_line("/proc/self/stat");
  size_t at = stat.rfind(')');
  for (int field = 2; field < 22 && at != std::string::npos; ++field) at = stat.find(' ', at + 1);
  if (at == std::string::npos) return 0;
  const double ticks = std::atof(stat.c_str() + at + 1);
  const double uptime = std::atof(read_line("/proc/uptime").c_str());
  return std::max(0.0, uptime - ticks / static_cast<double>(sysconf(_SC_CLK_TCK)));
}

}  // namespace

int64_t available_memory_bytes() {
  int64_t available = std::numeric_limits<int64_t>::max();
  std::ifstream info("/proc/meminfo");
  std::string name;
  for (int64_t kib = 0; info >> name >> kib; info.ignore(64, '\n')) {
    if (name == "MemAvailable:") available = kib << 10;
  }
  return std::min(available, memory_below_limit().value_or(available));
}

int64_t total_memory_bytes() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<int64_t>(sysconf(_SC_PAGESIZE));
}

int64_t peak_rss_bytes() {
  // VmHWM counts this program only; ru_maxrss of getrusage may still be the peak of the parent, from before
  // exec.
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) * 1024;
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

bool process_runs(const std::string& number) {
  return !number.empty() && std::filesystem::exists("/proc/" + number);
}

double process_seconds() {
  static const double before_first_call = read_process_seconds();
  static const auto first_call = Clock::now();
  return before_first_call + std::chrono::duration<double>(Clock::now() - first_call).count();
}

std::filesystem::path user_cache_folder() {
  const std::filesystem::path hearth = "hearth";
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && cache[0] == '/')
    return cache / hearth;
  if (const char* home = std::getenv("HOME"); home != nullptr && home[0] == '/')
    return home / (".cache" / hearth);
  return {};
}

}  // namespace hearth
