#include "base/run_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/file.h"

namespace hearth {

void refuse_link(const fs::path& path) {
  std::error_code none;
  if (!fs::is_symlink(fs::symlink_status(path, none))) return;
  user_error(
      "{} is a link, and nothing in a run folder is written or deleted through links; delete the link, or "
      "put "
      "the file or folder itself there",
      path.string());
}

void make_inner_folder(const fs::path& folder) {
  refuse_link(folder);
  make_folder(folder);
}

WatchedFile::WatchedFile(fs::path path)
    : path_(std::move(path)), descriptor_(open(path_.c_str(), O_PATH | O_CLOEXEC)) {
  if (descriptor_ < 0) user_error("cannot open {}: {}", path_.string(), std::strerror(errno));
}

WatchedFile::~WatchedFile() { close(descriptor_); }

void WatchedFile::check() const {
  struct stat held {
  }, found{};
  const bool is_there = stat(path_.c_str(), &found) == 0;
  if (!is_there && errno != ENOENT && errno != ENOTDIR) return;
  const bool is_same = is_there && fstat(descriptor_, &held) == 0 && held.st_dev == found.st_dev &&
                       held.st_ino == found.st_ino;
  if (is_same) return;
  user_error(
      "{} was deleted or replaced while the run wrote to it, and other files of the run may be gone too; "
      "hearth "
      "checkpoints {} lists the checkpoints that are left",
      path_.string(), path_.parent_path().string());
}

}  // namespace hearth
