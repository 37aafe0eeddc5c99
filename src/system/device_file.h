#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"

namespace hearth::system {

/// Whom the kernel asks for permissions.
struct Identity {
  int64_t user = 0;
  std::vector<int64_t> groups;
};
/// Of this process.
Identity own_identity();

/// A file that leads to a GPU.
struct DeviceFile {
  std::string path;   ///< "/dev/kfd"
  std::string group;  ///< whose members may use it: "render"
  bool usable = false;
};

/// Those of GPUs below `root`: dev/kfd, dev/dri/renderD*, dev/nvidiactl, dev/nvidia0 and so on; what is not
/// there is left out.
std::vector<DeviceFile> list_device_files(const fs::path& root, const Identity& identity);

}  // namespace hearth::system
