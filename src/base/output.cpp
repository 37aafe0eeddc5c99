#include "base/output.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>

#include "base/error.h"

namespace hearth {
namespace {

constexpr size_t kNumDigits = 16;
/// Of the name that a temporary one begins with: all of it has to fit 255 bytes.
constexpr size_t kNameBytes = 200;
/// Names in an empty folder are made beside this.
constexpr const char* kNoName = "new";

[[noreturn]] void cannot_write(const fs::path& path, int code) {
  user_error("cannot write to {}: {}; try another place", path.string(), std::strerror(code));
}

/// Without a slash at the end, which would name what is inside.
fs::path plain_path(const fs::path& path) {
  return (fs::absolute(path) / ".").lexically_normal().parent_path();
}

/// What the temporary names of a path begin with; hexadecimal digits follow.
std::string hidden_start(const fs::path& path) {
  return fmt::format(".{}.hearth-", path.filename().string().substr(0, kNameBytes));
}

bool is_temporary(const fs::path& entry, const std::string& start) {
  const std::string name = entry.filename().string();
  return name.size() == start.size() + kNumDigits && name.starts_with(start) &&
         name.find_first_not_of("0123456789abcdef", start.size()) == name.npos;
}

/// An open descriptor that is locked, or -1 where another process holds the lock.
int open_locked(const fs::path& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (descriptor < 0 || flock(descriptor, LOCK_EX | LOCK_NB) == 0) return descriptor;
  close(descriptor);
  return -1;
}

void delete_leftovers(const fs::path& path) {
  const std::string start = hidden_start(path);
  const fs::path folder = path.has_parent_path() ? path.parent_path() : ".";
  std::error_code code;
  std::vector<fs::path> found;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code)) {
    if (is_temporary(at->path(), start)) found.push_back(at->path());
  }
  for (const fs::path& entry : found) {
    const int lock = open_locked(entry);
    if (lock < 0) continue;
    fs::remove_all(entry, code);
    close(lock);
  }
}

/// The lowest folder above the path that is there.
fs::path folder_above(fs::path path) {
  do path = path.parent_path();
  while (!path_exists(path) && path.has_relative_path());
  return path;
}

/// Whether there is a folder already, which must be empty then.
bool expect_free(const fs::path& path) {
  std::error_code code;
  if (fs::symlink_status(path, code).type() == fs::file_type::not_found) return false;
  const bool is_folder = fs::is_directory(path, code);
  if (is_folder) delete_leftovers(path / kNoName);
  if (is_folder && list_folder(path).empty()) return true;
  user_error("expected a new or an empty folder to write to, got '{}', {}; try another --out", path.string(),
             is_folder ? "where there are files already" : "which is there already");
}

}  // namespace

void expect_place_for_file(const fs::path& path) {
  std::error_code unknown;
  const fs::file_status status = fs::status(path, unknown);
  if (fs::is_character_file(status) || fs::is_fifo(status)) return;
  if (fs::exists(status) && !fs::is_regular_file(status))
    user_error("expected a place for a file at {}, got {}; try another name", path.string(),
               fs::is_directory(status) ? "a folder" : "something that is none");
  // Permissions alone do not tell.
  const Temporary tried(path, Temporary::Kind::file);
}

void expect_place_for_folder(const fs::path& folder) {
  const fs::path path = plain_path(folder);
  const fs::path found = path_exists(path) ? path : folder_above(path);
  if (!fs::is_directory(found))
    user_error("expected a folder to write to, got {}, where {} is none; try another --out", folder.string(),
               found.string());
  const Temporary tried(found / kNoName, Temporary::Kind::folder, folder);
}

Temporary::Temporary(const fs::path& path, Kind kind, const fs::path& known_as) {
  delete_leftovers(path);
  std::random_device random;
  const std::string start = hidden_start(path);
  int code = EEXIST;
  while (code == EEXIST) {
    path_ = path.parent_path() / fmt::format("{}{:08x}{:08x}", start, random(), random());
    const int made = kind == Kind::folder
                         ? mkdir(path_.c_str(), 0700)
                         : open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    code = made < 0 ? errno : 0;
    if (kind == Kind::file && made >= 0) close(made);
  }
  if (code != 0) cannot_write(known_as.empty() ? path : known_as, code);
  lock_ = open_locked(path_);
}

Temporary::~Temporary() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  if (lock_ >= 0) close(lock_);
}

NewFolder::NewFolder(const fs::path& path) : path_(plain_path(path)), was_there_(expect_free(path_)) {
  expect_place_for_folder(path);
  for (fs::path above = path_.parent_path(); !path_exists(above); above = above.parent_path())
    made_.push_back(above);
  make_folder(path_.parent_path());
  temporary_.emplace(was_there_ ? path_ / kNoName : path_, Temporary::Kind::folder);
  // Inside, it has the permissions of folders that people make.
  contents_ = temporary_->path() / path_.filename();
  if (mkdir(contents_.c_str(), 0777) != 0) cannot_write(path, errno);
}

NewFolder::~NewFolder() {
  temporary_.reset();
  std::error_code ignored;
  // Those that hold something else by now stay.
  for (const fs::path& folder : made_) fs::remove(folder, ignored);
}

void NewFolder::commit() {
  sync_folder(contents_);
  std::error_code code;
  if (!was_there_) {
    fs::rename(contents_, path_, code);
  } else {
    if (list_folder(path_).size() > 1)
      user_error("expected the folder {} to stay empty, but something was put there; try another --out",
                 path_.string());
    for (const fs::path& entry : list_folder(contents_)) {
      if (!code) fs::rename(entry, path_ / entry.filename(), code);
    }
  }
  if (code) user_error("cannot put the new folder in place at {}: {}", path_.string(), code.message());
  made_.clear();
  temporary_.reset();
  sync_folder(was_there_ ? path_ : path_.parent_path());
}

}  // namespace hearth
