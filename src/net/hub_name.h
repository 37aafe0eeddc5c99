#pragma once

#include <string>
#include <string_view>

namespace hearth::net {

/// A model, dataset, file or folder on the Hugging Face hub:
/// hf:ORG/NAME, hf:ORG/NAME@REVISION/FILE, hf:datasets/ORG/NAME/FILE.
struct HubName {
  bool is_dataset = false;
  std::string repo;               ///< "ORG/NAME", or "NAME" of an old model without an organization
  std::string revision = "main";  ///< branch, tag or commit
  std::string path;               ///< file or folder in the repository; empty: the repository

  /// Formats the name as parse_hub_name() reads it.
  std::string text() const;
  /// Returns "models" or "datasets", as in the hub's URLs.
  std::string type() const { return is_dataset ? "datasets" : "models"; }
};

/// True if the text starts with hf:, so that it names something on the hub and not a local file.
bool is_hub_name(std::string_view text);
/// Parses a name with or without hf:. Throws a UserError if it is invalid.
HubName parse_hub_name(std::string_view text);

/// True if a path of the hub may become a path below a folder: it is relative and has no empty component,
/// ., .., backslash or control character.
bool is_safe_path(std::string_view path);
/// True for 40 lower-case hexadecimal digits: a git commit or blob.
bool is_git_hash(std::string_view text);
/// True for 64 lower-case hexadecimal digits: the SHA-256 of a large file (LFS).
bool is_sha256(std::string_view text);

}  // namespace hearth::net
