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
  /// SHA-256 of a large file (64 digits), or git's SHA-1 of a small one (40 digits). It is also the name of
  /// the file's blob in the cache.
  std::string hash;

  bool operator==(const HubFile&) const = default;
};

/// Parses a page of the hub's listing of files (/api/models/NAME/tree/COMMIT). Skips folders. Throws a
/// UserError that starts with `where` if the page is invalid, or a path, size or hash in it is not allowed.
std::vector<HubFile> parse_hub_listing(std::string_view json, std::string_view where);

/// Returns the files that the name refers to and Hearth needs, sorted by path. If the name has a path, these
/// are that file or all files of that folder. For a model: configuration, tokenizer, license, and the weights
/// in one format (safetensors, otherwise .bin); for a diffusers pipeline, the same files in the folder of
/// each component. For a dataset: all files. Throws a UserError if the path does not exist, or if it is not
/// clear which weights to use.
std::vector<HubFile> needed_files(const HubName& name, const std::vector<HubFile>& files);
/// Throws a UserError if a file of a dataset is Parquet.
void refuse_parquet(const HubName& name, const std::string& path);

}  // namespace hearth::net
