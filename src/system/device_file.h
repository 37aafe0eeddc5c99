#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "system/tree.h"

namespace hearth::system {

/// Whom the kernel asks for permissions.
struct Identity {
  int64_t user = 0;
  std::vector<int64_t> groups;
};
/// Of the process that proc/self/status is about; this one's where there is no such file.
Identity read_identity(Tree& tree);

/// A file that leads to a GPU.
struct DeviceFile {
  std::string path;   ///< "/dev/kfd"
  std::string group;  ///< whose members may use it: "render"; its number where etc/group does not know it
  bool usable = false;
};

/// Those of GPUs: dev/kfd, dev/dri/renderD*, dev/dxg, dev/nvidiactl, dev/nvidia0 and so on; what is not there
/// is left out.
std::vector<DeviceFile> list_device_files(Tree& tree, const Identity& identity);

}  // namespace hearth::system
