#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "system/tree.h"

namespace hearth::system {

/// User and groups for which file permissions are checked.
struct Identity {
  int64_t user = 0;
  std::vector<int64_t> groups;
};
/// Returns the user and groups that proc/self/status of the tree states; those of this process if the tree
/// has no such file.
Identity read_identity(Tree& tree);

/// A device file of a GPU driver.
struct DeviceFile {
  std::string path;   ///< "/dev/kfd"
  std::string group;  ///< group with access: "render"; the number if etc/group does not list it
  /// True if the identity may read and write the file.
  bool usable = false;
};

/// Returns the existing device files of GPUs: dev/kfd, dev/dri/renderD*, dev/dxg, dev/nvidiactl, dev/nvidia0
/// and so on.
std::vector<DeviceFile> list_device_files(Tree& tree, const Identity& identity);

}  // namespace hearth::system
