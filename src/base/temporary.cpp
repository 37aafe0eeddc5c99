#include "base/temporary.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"

namespace hearth {
namespace {

constexpr size_t kNumDigits = 16;
/// Max number of bytes of the base name in a temporary name, which is limited to 255 bytes.
constexpr size_t kNameBytes = 200;

/// Returns the prefix of the temporary names for a path; hexadecimal digits follow it.
std::string hidden_start(const fs::path& path) {
  return fmt::format(".{}.hearth-", path.filename().string().substr(0, kNameBytes));
}

bool is_temporary(const fs::path& entry, const std::string& start) {
  const std::string name = entry.filename().string();
  return name.size() == start.size() + kNumDigits && name.starts_with(start) &&
         name.find_first_not_of("0123456789abcdef", start.size()) == name.npos;
}

/// Opens and locks the entry. Returns the descriptor, or -1 with errno: EWOULDBLOCK if another process holds
/// the lock.
int open_locked(const fs::path& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (descriptor < 0 || flock(descriptor, LOCK_EX | LOCK_NB) == 0) return descriptor;
  const int code = errno;
  close(descriptor);
  errno = code;
  return -1;
}

/// Creates an entry. Returns a non-negative number on success; -1 with errno on failure.
int create(const fs::path& path, Temporary::Kind kind) {
  if (kind == Temporary::Kind::folder) return mkdir(path.c_str(), 0700);
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file >= 0) close(file);
  return file;
}

}  // namespace

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

void refuse_to_write(const fs::path& path, int code) {
  user_error("cannot write to {}: {}; use another path", path.string(), std::strerror(code));
}

Temporary::Temporary(const fs::path& path, Kind kind, const fs::path& display_path) {
  delete_leftovers(path);
  std::random_device random;
  const std::string start = hidden_start(path);
  while (true) {
    path_ = path.parent_path() / fmt::format("{}{:08x}{:08x}", start, random(), random());
    const bool is_made = create(path_, kind) >= 0;
    if (!is_made && errno != EEXIST) refuse_to_write(display_path.empty() ? path : display_path, errno);
    if (is_made && lock()) return;
  }
}

bool Temporary::lock() {
  lock_ = open_locked(path_);
  const int code = lock_ < 0 ? errno : 0;
  struct stat ignored {};
  // Before the lock was taken, another process may have deleted the entry as a leftover.
  const bool is_there = lstat(path_.c_str(), &ignored) == 0;
  if (is_there && code != EWOULDBLOCK) return true;
  if (lock_ >= 0) close(lock_);
  lock_ = -1;
  return false;
}

Temporary::~Temporary() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  if (lock_ >= 0) close(lock_);
}

}  // namespace hearth
