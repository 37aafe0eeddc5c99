#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/path.h"

namespace hearth {

/// A read-only memory-mapped file, unmapped by the destructor. Movable, not copyable.
class MappedFile {
 public:
  MappedFile() = default;
  /// Maps the file. UserError if it cannot be opened, is not a regular file, or is a git-lfs pointer.
  explicit MappedFile(const fs::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// Installs a SIGBUS handler: if a mapped file is truncated while it is read, the process prints the file's
/// name and exits with status 2.
void install_sigbus_handler();

/// Returns the contents of a file; UserError if it cannot be read, is larger than `limit_bytes`, or is
/// a git-lfs pointer.
std::string read_file(const fs::path& path, int64_t limit_bytes = int64_t{1} << 30);

/// Appends to a file. Every failure, including a full disk, is a UserError with the path.
class FileWriter {
 public:
  enum class Existing { replaced, continued };
  /// Creates the file. If it exists, truncates it (replaced) or appends to it (continued).
  explicit FileWriter(fs::path path, Existing existing = Existing::replaced);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  /// Flushes the file to disk and closes it.
  void sync_and_close();

 private:
  fs::path path_;
  int descriptor_ = -1;
};

/// Returns true if the path exists; UserError if this cannot be determined, for example on a failing disk.
bool path_exists(const fs::path& path);

/// Returns the paths of a folder's entries, unsorted; empty if the folder does not exist. UserError if the
/// folder cannot be listed.
std::vector<fs::path> list_folder(const fs::path& folder);

/// Flushes a folder's entries to disk, so that a rename in it survives a power failure.
void sync_folder(const fs::path& folder);

/// Renames a file, replacing the target, and flushes the folder. UserError with both paths on failure.
void rename_durably(const fs::path& from, const fs::path& to);

/// Creates a folder and its missing parents, and flushes each to disk; UserError on failure.
void make_folder(const fs::path& folder);

/// Keeps a folder open to detect that it was moved, deleted or replaced.
class WatchedFolder {
 public:
  /// Opens the folder; UserError on failure.
  explicit WatchedFolder(fs::path path);
  ~WatchedFolder();
  WatchedFolder(const WatchedFolder&) = delete;
  WatchedFolder& operator=(const WatchedFolder&) = delete;

  /// Throws a UserError if the path no longer refers to this folder.
  void check() const;

 private:
  fs::path path_;
  int descriptor_ = -1;
};

/// Calls `write` with the path of a temporary file in the same folder, which it must fill and flush, then
/// renames that file to `path`: readers see either the old file or the complete new one. If `write` throws,
/// the old file is unchanged and the temporary file is deleted.
void replace_file(const fs::path& path, FunctionRef<void(const fs::path&)> write);

/// Replaces a file's contents atomically (see replace_file); a device or a pipe is written to in place.
void write_file_atomically(const fs::path& path, std::string_view contents);

}  // namespace hearth
