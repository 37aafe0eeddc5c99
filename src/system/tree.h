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

/// What a file holds, at most Tree::kMostBytes of it; empty where there is none, or it cannot be read. It may
/// block for as long as a driver likes.
std::string read_start(std::string_view path);

/// The number that a text begins with after blanks, decimal or 0x...
std::optional<int64_t> number_of(std::string_view text);

/// The files that say what a machine is: /sys, /proc, /dev and /etc below a root that tests plant. Paths are
/// relative to it ("sys/bus/pci/devices"). A file is read in a process of its own, so that one that blocks is
/// named rather than waited for; nothing is read twice.
class Tree {
 public:
  static constexpr int64_t kMostBytes = 1 << 20;  ///< of a file; what comes after is not read
  static constexpr double kSeconds = 2;           ///< that a file may take

  explicit Tree(fs::path root = "/");

  const fs::path& root() const { return root_; }
  /// What a file holds; empty where there is none, it cannot be read, or it blocks.
  const std::string& text(const std::string& path);
  /// Its first line, without blanks at its ends; a number in it, decimal or 0x...
  std::string line(const std::string& path);
  std::optional<int64_t> number(const std::string& path);
  /// Of lines "NAME VALUE" or "NAME: VALUE" the value of that name; empty where there is none. A number that
  /// it begins with.
  std::string value(const std::string& path, std::string_view name);
  std::optional<int64_t> number(const std::string& path, std::string_view name);
  bool exists(const std::string& path) const;
  /// The names of what lies in a folder, sorted; at most kMostEntries of them.
  static constexpr size_t kMostEntries = 4096;
  std::vector<std::string> list(const std::string& folder) const;
  /// The last name of where a link leads: "amdgpu" of a device's driver; empty where it is none.
  std::string link_name(const std::string& path) const;
  /// The folder that links lead to, still below the root: "sys/devices/pci0000:00/0000:00:01.1".
  std::string resolved(const std::string& path) const;
  /// Files that blocked.
  const std::vector<std::string>& blocked() const { return blocked_; }

 private:
  fs::path root_;
  Isolated reader_;
  std::map<std::string, std::string> read_;
  std::vector<std::string> blocked_;
};

}  // namespace hearth::system
