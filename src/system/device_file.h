#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "system/tree.h"

namespace hearth::system {

/// A user and its groups, for which access to files is checked.
struct Identity {
  int64_t user = 0;
  std::vector<int64_t> groups;
};
/// Returns the user and groups of proc/self/status below the tree's root; those of this process if there is
/// no such file.
Identity read_identity(Tree& tree);

/// A device file of a GPU's driver.
struct DeviceFile {
  std::string path;   ///< absolute path: "/dev/kfd"
  std::string group;  ///< group of the file: "render"; its number as text if etc/group does not list it
  /// True if the identity may read and write the file.
  bool usable = false;
};

/// Returns the device files of GPUs that exist: dev/kfd, dev/dri/renderD*, dev/dxg, dev/nvidiactl,
/// dev/nvidia0 and so on.
std::vector<DeviceFile> list_device_files(Tree& tree, const Identity& identity);

}  // namespace hearth::system
