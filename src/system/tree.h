#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/isolated.h"

namespace hearth::system {

/// Returns the contents of a file, at most Tree::kMaxFileBytes bytes; empty if it does not exist or cannot be
/// read. May block in a driver.
std::string read_start(std::string_view path);

/// Parses the decimal or hexadecimal (0x...) number at the start of a text, after whitespace; nullopt if
/// there is none.
std::optional<int64_t> number_of(std::string_view text);

/// Cached access to the files that describe a machine: /sys, /proc, /dev and /etc below a root folder, which
/// tests replace. Paths are relative to the root ("sys/bus/pci/devices"). Files are read in a separate
/// process, so that a file whose read blocks is reported and does not stop the program. Each file is read at
/// most once.
class Tree {
 public:
  static constexpr int64_t kMaxFileBytes = 1 << 20;  ///< max bytes read of a file
  static constexpr double kSeconds = 2;              ///< timeout for reading a file

  explicit Tree(fs::path root = "/");

  const fs::path& root() const { return root_; }
  /// Returns the contents of a file; empty if it does not exist, cannot be read, or blocks.
  const std::string& text(const std::string& path);
  /// Returns the first line without leading and trailing whitespace.
  std::string line(const std::string& path);
  /// Returns the decimal or hexadecimal (0x...) number at the start of the first line.
  std::optional<int64_t> number(const std::string& path);
  /// Returns the value in the line "NAME VALUE" or "NAME: VALUE" of a file; empty if there is no such line.
  std::string value(const std::string& path, std::string_view name);
  /// Returns the number at the start of the value that value() returns.
  std::optional<int64_t> number(const std::string& path, std::string_view name);
  bool exists(const std::string& path) const;
  /// Max number of entries that list() returns.
  static constexpr size_t kMaxEntries = 4096;
  /// Returns the names of the entries of a folder, sorted.
  std::vector<std::string> list(const std::string& folder) const;
  /// Returns the last component of the target of a symbolic link, for example "amdgpu" for the `driver` link
  /// of a device; empty if the path is not a link.
  std::string link_name(const std::string& path) const;
  /// Returns the path of a folder with all links resolved, relative to the root:
  /// "sys/devices/pci0000:00/0000:00:01.1".
  std::string resolved(const std::string& path) const;
  /// Returns the paths of files whose read blocked.
  const std::vector<std::string>& blocked() const { return blocked_; }

 private:
  fs::path root_;
  IsolatedProcess reader_;
  std::map<std::string, std::string> read_;
  std::vector<std::string> blocked_;
};

}  // namespace hearth::system
