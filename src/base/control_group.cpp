#include "base/control_group.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace hearth {
namespace {

namespace fs = std::filesystem;

/// Names of the files that one cgroup version has for the limit, the usage and OOM kills, and of its cache
/// counter.
struct Interface {
  const char *limit, *used, *cache, *kills;
};
constexpr Interface kVersion2 = {"memory.max", "memory.current", "inactive_file", "memory.events"};
constexpr Interface kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file",
                                 "memory.oom_control"};
/// Limits from this value on mean "no limit": version 1 reports that as the largest number of pages.
constexpr int64_t kNoLimit = int64_t{1} << 60;

/// The control group of this process in one cgroup version: its folder, followed by the folders of its
/// parents.
struct Groups {
  const Interface* interface = nullptr;
  std::vector<fs::path> folders;
};

std::optional<int64_t> read_number(const fs::path& path) {
  std::ifstream file(path);
  int64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

/// Returns the number after `name` at the start of a line, as in memory.stat.
std::optional<int64_t> read_named(const fs::path& path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name) || line[name.size()] != ' ') continue;
    int64_t value = 0;
    if (std::istringstream(line.substr(name.size())) >> value) return value;
  }
  return std::nullopt;
}

/// True if a comma-separated list, such as mount options, contains the word.
bool has_word(const std::string& list, const std::string& word) {
  return ("," + list + ",").find("," + word + ",") != std::string::npos;
}

/// Returns the path of this process's group, relative to the mount of its cgroup version; empty if /proc
/// lists none.
std::string path_of_group(const fs::path& root, const Interface& interface) {
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    // Line format: NUMBER:CONTROLLERS:PATH. Version 2 has number 0 and an empty list of controllers.
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (&interface == &kVersion2 ? controllers.empty() : has_word(controllers, "memory"))
      return line.substr(second + 1);
  }
  return "";
}

/// The mount point of a cgroup version, and the path of the group that is mounted there.
struct Mount {
  fs::path folder;
  std::string group;
};

std::optional<Mount> find_mount(const fs::path& root, const Interface& interface) {
  std::ifstream file(root / "proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    // Line format: "35 31 0:32 GROUP FOLDER rw,relatime - TYPE SOURCE OPTIONS", see proc(5).
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream before(line), after(line.substr(dash + 3));
    std::string skipped, type, options;
    Mount mount;
    std::string folder;
    before >> skipped >> skipped >> skipped >> mount.group >> folder;
    after >> type >> skipped >> options;
    const bool fits =
        &interface == &kVersion2 ? type == "cgroup2" : type == "cgroup" && has_word(options, "memory");
    if (!fits) continue;
    mount.folder = root / fs::path(folder).relative_path();
    return mount;
  }
  return std::nullopt;
}

Groups find_groups(const fs::path& root, const Interface& interface) {
  Groups groups{.interface = &interface, .folders = {}};
  const auto mount = find_mount(root, interface);
  if (!mount) return groups;
  std::string path = path_of_group(root, interface);
  const std::string& top = mount->group;
  // In a container, the container's own group may be the root of the mount. Its path then starts with the
  // group's name on the host.
  if (top != "/" && path.starts_with(top)) path = path.substr(top.size());
  fs::path folder = (mount->folder / fs::path(path).relative_path()).lexically_normal();
  std::error_code none;
  if (path.find("..") != std::string::npos || !fs::is_directory(folder, none)) folder = mount->folder;
  if (!folder.has_filename()) folder = folder.parent_path();
  for (;; folder = folder.parent_path()) {
    groups.folders.push_back(folder);
    if (folder == mount->folder || folder == folder.parent_path()) return groups;
  }
}

std::array<Groups, 2> all_groups(const fs::path& root) {
  return {find_groups(root, kVersion2), find_groups(root, kVersion1)};
}

std::optional<int64_t> limit_of(const Groups& groups, const fs::path& folder) {
  const auto limit = read_number(folder / groups.interface->limit);
  return limit && *limit < kNoLimit ? limit : std::nullopt;
}

template <typename Value>
std::optional<int64_t> lowest(const fs::path& root, Value value) {
  std::optional<int64_t> found;
  for (const Groups& groups : all_groups(root)) {
    for (const fs::path& folder : groups.folders) {
      const std::optional<int64_t> one = value(groups, folder);
      if (one) found = std::min(found.value_or(*one), *one);
    }
  }
  return found;
}

std::optional<int64_t> left_in(const Groups& groups, const fs::path& folder) {
  const auto limit = limit_of(groups, folder), used = read_number(folder / groups.interface->used);
  if (!limit || !used) return std::nullopt;
  const int64_t cache = read_named(folder / "memory.stat", groups.interface->cache).value_or(0);
  return std::max<int64_t>(0, *limit - std::max<int64_t>(0, *used - cache));
}

}  // namespace

std::optional<int64_t> memory_limit(const fs::path& root) { return lowest(root, limit_of); }

std::optional<int64_t> memory_below_limit(const fs::path& root) { return lowest(root, left_in); }

int64_t num_memory_kills(const fs::path& root) {
  for (const Groups& groups : all_groups(root)) {
    if (groups.folders.empty()) continue;
    if (const auto kills = read_named(groups.folders.front() / groups.interface->kills, "oom_kill"))
      return *kills;
  }
  return read_named(root / "proc/vmstat", "oom_kill").value_or(0);
}

}  // namespace hearth
