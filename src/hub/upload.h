#pragma once

#include <string>
#include <vector>

#include "net/hub_download.h"

namespace hearth::hub {

/// A file to upload: `file` on this machine, or, if that is empty, `contents`.
struct UploadFile {
  std::string path;  ///< in the repository
  fs::path file = {};
  std::string contents = {};
};

struct UploadOptions {
  bool is_private = false;  ///< for a repository that does not exist yet
  std::string message = "Upload with Hearth";
};

/// Uploads files to a repository of the Hugging Face hub in one commit, and returns the URL of the commit.
/// Creates the repository if it does not exist. Large files are sent to the hub's store of LFS objects,
/// unless it has them, in parts if the hub asks for them. UserError if there is no token, and for every
/// failure; the repository is unchanged then.
std::string upload_to_hub(const net::HubName& name, const std::vector<UploadFile>& files,
                          const UploadOptions& options, const net::HubSettings& settings,
                          const net::HubReporter& reporter);

}  // namespace hearth::hub
