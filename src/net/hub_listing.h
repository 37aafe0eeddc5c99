#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "net/hub_name.h"

namespace hearth::net {

/// A file in a repository of the hub.
struct HubFile {
  std::string path;  ///< is_safe_path() holds
  int64_t num_bytes = 0;
  /// SHA-256 of a large file (64 digits), or git's SHA-1 of a small one (40 digits); also its name in the
  /// cache.
  std::string hash;

  bool operator==(const HubFile&) const = default;
};

/// Parses a page of the hub's listing of files (/api/models/NAME/tree/COMMIT). Skips folders. UserError,
/// which names `where`, if it is invalid or a path, size or hash is not allowed.
std::vector<HubFile> parse_hub_listing(std::string_view json, std::string_view where);

/// Returns the files that Hearth needs of a repository, sorted by path. If the name has a path: that file
/// (all parts of a split GGUF file), or all files of that folder. Of a model: configuration, tokenizer,
/// license, and one format of the weights (safetensors, otherwise .bin); of a diffusers pipeline also its
/// folders. Of a dataset: all files. UserError if the path does not exist or if the weights cannot be chosen.
std::vector<HubFile> needed_files(const HubName& name, const std::vector<HubFile>& files);

}  // namespace hearth::net
