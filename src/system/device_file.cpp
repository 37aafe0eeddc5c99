#include "system/device_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

namespace hearth::system {
namespace {

/// As etc/group calls it; its number where that does not know it.
std::string group_name(const fs::path& root, int64_t number) {
  std::string wanted = std::to_string(number);
  std::error_code error;
  const fs::path path = root / "etc/group";
  std::istringstream lines(fs::is_regular_file(path, error) ? read_file(path) : "");
  std::string line;
  while (std::getline(lines, line)) {
    std::istringstream fields(line);
    std::string name, password, id;
    if (std::getline(fields, name, ':') && std::getline(fields, password, ':') &&
        std::getline(fields, id, ':') && id == wanted)
      return name;
  }
  return wanted;
}

/// Whether it may be read and written.
bool allows(const struct stat& file, const Identity& identity) {
  if (identity.user == 0) return true;
  const auto grants = [&](mode_t both) { return (file.st_mode & both) == both; };
  if (file.st_uid == identity.user) return grants(S_IRUSR | S_IWUSR);
  if (std::ranges::find(identity.groups, int64_t{file.st_gid}) != identity.groups.end())
    return grants(S_IRGRP | S_IWGRP);
  return grants(S_IROTH | S_IWOTH);
}

void add(const fs::path& root, const std::string& path, const Identity& identity,
         std::vector<DeviceFile>& files) {
  struct stat file {};
  if (stat((root.string() + path).c_str(), &file) != 0) return;
  files.push_back({.path = path, .group = group_name(root, file.st_gid), .usable = allows(file, identity)});
}

}  // namespace

Identity own_identity() {
  std::vector<gid_t> groups(static_cast<size_t>(std::max(0, getgroups(0, nullptr))));
  const int count = getgroups(static_cast<int>(groups.size()), groups.data());
  groups.resize(static_cast<size_t>(std::max(0, count)));
  groups.push_back(getegid());
  return {.user = geteuid(), .groups = {groups.begin(), groups.end()}};
}

std::vector<DeviceFile> list_device_files(const fs::path& root, const Identity& identity) {
  std::vector<DeviceFile> files;
  add(root, "/dev/kfd", identity, files);
  std::vector<std::string> others = {"/dev/nvidiactl"};
  std::error_code error;
  for (const auto& [folder, prefix] : {std::pair{"/dev/dri", "renderD"}, std::pair{"/dev", "nvidia"}}) {
    for (const fs::directory_entry& entry : fs::directory_iterator(root.string() + folder, error)) {
      const std::string name = entry.path().filename().string();
      const std::string number = name.starts_with(prefix) ? name.substr(std::string(prefix).size()) : "";
      if (!number.empty() && std::ranges::all_of(number, [](char c) { return c >= '0' && c <= '9'; }))
        others.push_back(std::string(folder) + "/" + name);
    }
  }
  std::ranges::sort(others);
  for (const std::string& path : others) add(root, path, identity, files);
  return files;
}

}  // namespace hearth::system
