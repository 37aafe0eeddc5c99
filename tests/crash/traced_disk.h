#pragma once

#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/file.h"

namespace hearth {

/// What becomes of changes that were not flushed: of entries of folders, and of bytes of files.
enum class Entries : uint8_t { lost, kept, some };
enum class Bytes : uint8_t { lost, zeros, half, some };

/// A folder as a disk has it, played forward by the calls that faults/faults.cpp has traced. A change reaches
/// the disk for sure when its file or folder is flushed, and in no order otherwise: names are a matter of
/// folders, bytes one of files.
class TracedDisk {
 public:
  /// By path below the root; folders have no contents.
  using Files = std::map<std::string, std::optional<std::string>>;

  /// Begins with what lies in `root` now, all of it flushed.
  explicit TracedDisk(fs::path root);

  /// A line of the trace.
  void play(const std::string& call);

  /// What a power cut may leave.
  Files cut(Entries entries, Bytes bytes, std::mt19937_64& random) const;

 private:
  /// Names that change together; -1: the name goes.
  using Change = std::vector<std::pair<std::string, int>>;
  struct Node {
    bool is_folder = false;
    std::string now = {}, flushed = {};
    std::map<std::string, int> entries = {}, flushed_entries = {};
    std::vector<Change> unflushed = {};
  };

  int add(Node node);
  int load(const fs::path& path);
  int find(const fs::path& path) const;
  void change(const fs::path& path, Change change);
  void create(const fs::path& path);
  void flush(Node& node);
  void collect(int node, const std::string& path, Entries entries, Bytes bytes, std::mt19937_64& random,
               Files& files) const;

  fs::path root_;
  std::vector<Node> nodes_;
};

void write_files(const TracedDisk::Files& files, const fs::path& folder);

}  // namespace hearth
