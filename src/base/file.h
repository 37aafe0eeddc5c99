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

/// A read-only memory-mapped file, unmapped by the destructor. Moves, never copies.
class MappedFile {
 public:
  MappedFile() = default;
  /// Throws UserError naming the path when it cannot be opened, is not a regular file or is a
  /// pointer of git-lfs.
  explicit MappedFile(const fs::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// Has a mapped file that is cut short while it is read end the process with a sentence that names it, and
/// with status 2. The system would end it by SIGBUS.
void explain_lost_pages();

/// The whole file; UserError when it cannot be read, is larger than `limit_bytes` or is a pointer of git-lfs.
std::string read_file(const fs::path& path, int64_t limit_bytes = int64_t{1} << 30);

/// Appends to a file descriptor; every failure (a full disk among them) is a UserError that names the path.
class FileWriter {
 public:
  explicit FileWriter(fs::path path);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  /// Flushes to the disk and closes.
  void sync_and_close();

 private:
  fs::path path_;
  int descriptor_ = -1;
};

/// Whether there is something at the path; UserError when that cannot be known, as on a disk that fails.
bool path_exists(const fs::path& path);

/// What lies in a folder, in no order; nothing where there is no such folder. UserError when it cannot be
/// listed.
std::vector<fs::path> list_folder(const fs::path& folder);

/// Flushes a folder's entries to the disk, so that a rename in it survives a power cut.
void sync_folder(const fs::path& folder);

/// Renames a file over another and flushes their folder; UserError names both.
void rename_durably(const fs::path& from, const fs::path& to);

/// Creates a folder and those above it, each of which is flushed to the disk; UserError when that cannot be.
void make_folder(const fs::path& folder);

/// A folder that is known by what it is, not by its name alone.
class HeldFolder {
 public:
  /// UserError when it cannot be opened.
  explicit HeldFolder(fs::path path);
  ~HeldFolder();
  HeldFolder(const HeldFolder&) = delete;
  HeldFolder& operator=(const HeldFolder&) = delete;

  /// UserError when its path no longer leads to it: it was moved, deleted or replaced.
  void check() const;

 private:
  fs::path path_;
  int descriptor_ = -1;
};

/// Has `write` fill and flush a temporary file beside `path`, then renames: readers see the old file or the
/// whole new one. A write that throws leaves the old file and nothing else.
void replace_file(const fs::path& path, FunctionRef<void(const fs::path&)> write);

/// replace_file with these contents; a device or a pipe is written to, never replaced.
void write_file_atomically(const fs::path& path, std::string_view contents);

}  // namespace hearth
