#include "io/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <thread>

#include "base/error.h"
#include "base/run_files.h"

namespace hearth::io {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kNap(50);

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "this host";
}

/// Tries to lock the file; returns true if another process holds the lock. If the file system has no locks,
/// returns false.
bool is_taken(int descriptor) { return flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK; }

/// Writes the name of this process to the lock file, for the messages of other processes. Errors are ignored:
/// on a full disk, the file stays empty.
void write_owner(int descriptor) {
  const std::string text = fmt::format("process {} on {}\n", getpid(), host_name());
  if (ftruncate(descriptor, 0) != 0 || pwrite(descriptor, text.data(), text.size(), 0) < 0) return;
}

std::string read_owner(int descriptor) {
  std::array<char, 300> text{};
  const ssize_t count = pread(descriptor, text.data(), text.size(), 0);
  std::string owner(text.data(), count < 0 ? 0 : static_cast<size_t>(count));
  while (!owner.empty() && owner.back() == '\n') owner.pop_back();
  return owner.empty() ? "another process" : owner;
}

/// Opens or creates the lock file without following a link. Returns -1 on failure.
int open_lock(const fs::path& path) {
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (descriptor < 0) refuse_link(path);
  struct stat info {};
  if (descriptor < 0 || fstat(descriptor, &info) != 0 || info.st_nlink < 2) return descriptor;
  close(descriptor);
  user_error("{}: a hard link shares its contents with another file, which would be overwritten; delete {}",
             path.string(), path.string());
}

/// Returns whether a process has the file open.
LockOwner::Presence presence_of(int process, const struct stat& file) {
  const fs::path folder = fmt::format("/proc/{}", process);
  std::error_code error;
  if (!fs::exists(folder, error)) return LockOwner::Presence::none;
  fs::directory_iterator entries(folder / "fd", error);
  if (error) return LockOwner::Presence::unknown;
  for (; entries != fs::directory_iterator(); entries.increment(error)) {
    struct stat info {};
    if (error) break;
    if (stat(entries->path().c_str(), &info) == 0 && info.st_ino == file.st_ino && info.st_dev == file.st_dev)
      return LockOwner::Presence::alive;
  }
  return LockOwner::Presence::none;
}

}  // namespace

LockOwner find_lock_owner(const fs::path& folder) {
  const int descriptor = open((folder / ".lock").c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor < 0) return {};
  struct stat info {};
  const bool is_file = fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode);
  LockOwner owner{.name = is_file ? read_owner(descriptor) : ""};
  close(descriptor);
  int process = 0;
  std::array<char, 256> host{};
  if (std::sscanf(owner.name.c_str(), "process %d on %255s", &process, host.data()) != 2) return {};
  owner.presence = host_name() == host.data() ? presence_of(process, info) : LockOwner::Presence::unknown;
  return owner;
}

RunLock::RunLock(const fs::path& folder, double timeout_seconds)
    // A lock file that cannot be created is no error here: the run then fails when it writes its first file,
    // with a better message.
    : descriptor_(open_lock(folder / ".lock")) {
  if (descriptor_ < 0) return;
  const auto until = Clock::now() + std::chrono::duration<double>(timeout_seconds);
  while (is_taken(descriptor_)) {
    if (Clock::now() < until) {
      std::this_thread::sleep_for(kNap);
      continue;
    }
    const std::string owner = read_owner(descriptor_);
    close(descriptor_);
    user_error("{}: {} is training in this run folder; wait for it or stop it, or choose another --out",
               folder.string(), owner);
  }
  write_owner(descriptor_);
}

RunLock::~RunLock() {
  if (descriptor_ >= 0) close(descriptor_);
}

}  // namespace hearth::io
