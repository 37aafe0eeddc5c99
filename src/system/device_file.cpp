#include "system/device_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

namespace hearth::system {
namespace {

/// Returns the name of the group with this number from etc/group; the number as text if it is not listed.
std::string group_name(Tree& tree, int64_t number) {
  std::string wanted = std::to_string(number);
  std::istringstream lines(tree.text("etc/group"));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string name, password, id;
    if (std::getline(fields, name, ':') && std::getline(fields, password, ':') &&
        std::getline(fields, id, ':') && id == wanted)
      return name;
  }
  return wanted;
}

/// Returns true if the user or a group of the identity may read and write the file.
bool allows(const struct stat& file, const Identity& identity) {
  if (identity.user == 0) return true;
  const auto grants = [&](mode_t both) { return (file.st_mode & both) == both; };
  if (file.st_uid == identity.user) return grants(S_IRUSR | S_IWUSR);
  if (std::ranges::find(identity.groups, int64_t{file.st_gid}) != identity.groups.end())
    return grants(S_IRGRP | S_IWGRP);
  return grants(S_IROTH | S_IWOTH);
}

bool is_number(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

/// Returns the identity of the calling process.
Identity current_identity() {
  std::vector<gid_t> groups(static_cast<size_t>(std::max(0, getgroups(0, nullptr))));
  const int count = getgroups(static_cast<int>(groups.size()), groups.data());
  groups.resize(static_cast<size_t>(std::max(0, count)));
  groups.push_back(getegid());
  return {.user = geteuid(), .groups = {groups.begin(), groups.end()}};
}

}  // namespace

Identity read_identity(Tree& tree) {
  const std::string status = "proc/self/status";
  // Columns of both lines: real, effective, saved and file system id.
  std::istringstream users(tree.value(status, "Uid")), group_line(tree.value(status, "Gid"));
  std::istringstream groups(tree.value(status, "Groups"));
  Identity identity;
  int64_t real = 0, group = 0;
  if (!(users >> real >> identity.user)) return current_identity();
  if (group_line >> real >> group) identity.groups.push_back(group);
  while (groups >> group) identity.groups.push_back(group);
  return identity;
}

std::vector<DeviceFile> list_device_files(Tree& tree, const Identity& identity) {
  std::vector<std::string> paths = {"dev/dxg", "dev/kfd", "dev/nvidiactl"};
  for (const auto& [folder, prefix] : {std::pair{"dev/dri", "renderD"}, std::pair{"dev", "nvidia"}}) {
    for (const std::string& name : tree.list(folder)) {
      if (name.starts_with(prefix) &&
          is_number(std::string_view(name).substr(std::string_view(prefix).size())))
        paths.push_back(std::string(folder) + "/" + name);
    }
  }
  std::ranges::sort(paths);
  std::vector<DeviceFile> files;
  for (const std::string& path : paths) {
    struct stat file {};
    if (stat((tree.root() / path).c_str(), &file) != 0) continue;
    files.push_back(
        {.path = "/" + path, .group = group_name(tree, file.st_gid), .usable = allows(file, identity)});
  }
  return files;
}

}  // namespace hearth::system
