// For LD_PRELOAD:
// - Every open of a path that contains HEARTH_FAULT_PATH fails with the errno HEARTH_FAULT.
// - What changes files below the folder HEARTH_TRACE_ROOT is a line of the file HEARTH_TRACE, in the order in
//   which it happened: "create PATH", "write PATH HEX", "fsync PATH", "rename FROM TO", "exchange FROM TO",
//   "remove PATH", "folder PATH". The first line that contains HEARTH_INTERRUPT_AT interrupts
//   the process.
// - Nothing is flushed where HEARTH_NO_FLUSH is set: whoever tests what is left of it does not wait for a
// disk.
// - Flushes of folders fail with the errno HEARTH_FLUSH_FAULT; where it is EINTR, so does every other flush.
// - The time of day falls back by HEARTH_CLOCK_STEP seconds at every look at it.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <string>
#include <utility>

namespace {

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

bool fails(const char* path) {
  const char* part = std::getenv("HEARTH_FAULT_PATH");
  const char* code = std::getenv("HEARTH_FAULT");
  if (part == nullptr || code == nullptr || path == nullptr || std::strstr(path, part) == nullptr)
    return false;
  errno = std::atoi(code);
  return true;
}

bool flush_fails(int descriptor) {
  const char* code = std::getenv("HEARTH_FLUSH_FAULT");
  if (code == nullptr) return false;
  errno = std::atoi(code);
  static std::atomic<int> num_flushes = 0;
  struct stat info {};
  return errno == EINTR ? num_flushes++ % 2 == 0 : fstat(descriptor, &info) == 0 && S_ISDIR(info.st_mode);
}

/// Calls of several threads become lines in the order of their effects.
std::mutex& order() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

bool is_traced(const std::string& path) {
  const char* root = std::getenv("HEARTH_TRACE_ROOT");
  return root != nullptr && std::getenv("HEARTH_TRACE") != nullptr && path.starts_with(root);
}

void trace(const std::string& line) {
  const int kept = errno;
  const int out = next<int (*)(const char*, int, ...)>("open")(std::getenv("HEARTH_TRACE"),
                                                               O_WRONLY | O_APPEND | O_CREAT, 0644);
  if (out < 0 || next<ssize_t (*)(int, const void*, size_t)>("write")(out, line.data(), line.size()) < 0)
    std::abort();
  close(out);
  static bool interrupted = false;
  const char* last = std::getenv("HEARTH_INTERRUPT_AT");
  if (last != nullptr && line.find(last) != std::string::npos && !std::exchange(interrupted, true))
    kill(getpid(), SIGINT);
  errno = kept;
}

/// Where a descriptor leads now.
std::string path_of(int descriptor) {
  char path[4096] = "";
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t size = readlink(link.c_str(), path, sizeof(path) - 1);
  return {path, size < 0 ? 0 : static_cast<size_t>(size)};
}

std::string path_at(int folder, const char* path) {
  return folder == AT_FDCWD || path[0] == '/' ? path : path_of(folder) + "/" + path;
}

/// A call that returns 0 when it has changed something at `path`.
template <typename Call>
int traced(const std::string& path, const std::string& line, Call call) {
  if (!is_traced(path)) return call();
  const std::lock_guard lock(order());
  const int result = call();
  if (result == 0) trace(line + "\n");
  return result;
}

/// An open that may make the file, or empty it.
template <typename Call>
int opened(const std::string& path, int flags, Call call) {
  if ((flags & (O_CREAT | O_TRUNC)) == 0 || !is_traced(path)) return call();
  const std::lock_guard lock(order());
  const bool was_there = access(path.c_str(), F_OK) == 0;
  const int descriptor = call();
  if (descriptor >= 0 && (!was_there || (flags & O_TRUNC) != 0)) trace("create " + path + "\n");
  return descriptor;
}

void trace_write(const std::string& path, const void* bytes, size_t size) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string line = "write " + path + " ";
  for (const auto* byte = static_cast<const unsigned char*>(bytes); size > 0; --size, ++byte) {
    line += kDigits[*byte >> 4];
    line += kDigits[*byte & 15];
  }
  trace(line + "\n");
}

mode_t mode_of(int flags, va_list arguments) {
  return (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
}

/// What the clock has lost by now.
time_t lost_seconds() {
  static std::atomic<time_t> lost = 0;
  const char* step = std::getenv("HEARTH_CLOCK_STEP");
  return step == nullptr ? 0 : lost += std::atol(step);
}

}  // namespace

extern "C" {

#define HEARTH_OPEN(name)                                                                          \
  int name(const char* path, int flags, ...) {                                                     \
    if (fails(path)) return -1;                                                                    \
    va_list arguments;                                                                             \
    va_start(arguments, flags);                                                                    \
    const mode_t mode = mode_of(flags, arguments);                                                 \
    va_end(arguments);                                                                             \
    return opened(path, flags,                                                                     \
                  [&] { return next<int (*)(const char*, int, ...)>(#name)(path, flags, mode); }); \
  }
HEARTH_OPEN(open)
HEARTH_OPEN(open64)

#define HEARTH_OPENAT(name)                                                               \
  int name(int folder, const char* path, int flags, ...) {                                \
    if (fails(path)) return -1;                                                           \
    va_list arguments;                                                                    \
    va_start(arguments, flags);                                                           \
    const mode_t mode = mode_of(flags, arguments);                                        \
    va_end(arguments);                                                                    \
    return opened(path_at(folder, path), flags, [&] {                                     \
      return next<int (*)(int, const char*, int, ...)>(#name)(folder, path, flags, mode); \
    });                                                                                   \
  }
HEARTH_OPENAT(openat)
HEARTH_OPENAT(openat64)

#define HEARTH_FOPEN(name)                                                               \
  FILE* name(const char* path, const char* mode) {                                       \
    if (fails(path)) return nullptr;                                                     \
    FILE* file = nullptr;                                                                \
    const int flags = mode[0] == 'w' ? O_CREAT | O_TRUNC : mode[0] == 'a' ? O_CREAT : 0; \
    opened(path, flags, [&] {                                                            \
      file = next<FILE* (*)(const char*, const char*)>(#name)(path, mode);               \
      return file == nullptr ? -1 : 0;                                                   \
    });                                                                                  \
    return file;                                                                         \
  }
HEARTH_FOPEN(fopen)
HEARTH_FOPEN(fopen64)

DIR* opendir(const char* path) {
  return fails(path) ? nullptr : next<DIR* (*)(const char*)>("opendir")(path);
}

ssize_t write(int descriptor, const void* bytes, size_t size) {
  const auto call = next<ssize_t (*)(int, const void*, size_t)>("write");
  const std::string path = std::getenv("HEARTH_TRACE") == nullptr ? "" : path_of(descriptor);
  if (!is_traced(path)) return call(descriptor, bytes, size);
  const std::lock_guard lock(order());
  const ssize_t count = call(descriptor, bytes, size);
  if (count > 0) trace_write(path, bytes, static_cast<size_t>(count));
  return count;
}

/// Whoever uses it flushes at once.
size_t fwrite(const void* bytes, size_t size, size_t count, FILE* file) {
  const auto call = next<size_t (*)(const void*, size_t, size_t, FILE*)>("fwrite");
  const std::string path = std::getenv("HEARTH_TRACE") == nullptr ? "" : path_of(fileno(file));
  if (!is_traced(path)) return call(bytes, size, count, file);
  const std::lock_guard lock(order());
  const size_t done = call(bytes, size, count, file);
  if (done > 0) trace_write(path, bytes, size * done);
  return done;
}

int fsync(int descriptor) {
  const std::string path = path_of(descriptor);
  if (flush_fails(descriptor)) return -1;
  return traced(path, "fsync " + path, [&] {
    return std::getenv("HEARTH_NO_FLUSH") != nullptr ? 0 : next<int (*)(int)>("fsync")(descriptor);
  });
}

int rename(const char* from, const char* to) {
  return traced(to, std::string("rename ") + from + " " + to,
                [&] { return next<int (*)(const char*, const char*)>("rename")(from, to); });
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  const std::string line = path_at(from_folder, from) + " " + path_at(to_folder, to);
  return traced(path_at(to_folder, to), ((flags & RENAME_EXCHANGE) != 0 ? "exchange " : "rename ") + line,
                [&] {
                  return next<int (*)(int, const char*, int, const char*, unsigned)>("renameat2")(
                      from_folder, from, to_folder, to, flags);
                });
}

int mkdir(const char* path, mode_t mode) {
  return traced(path, std::string("folder ") + path,
                [&] { return next<int (*)(const char*, mode_t)>("mkdir")(path, mode); });
}

#define HEARTH_REMOVE(name)                                                 \
  int name(const char* path) {                                              \
    return traced(path, std::string("remove ") + path,                      \
                  [&] { return next<int (*)(const char*)>(#name)(path); }); \
  }
HEARTH_REMOVE(remove)
HEARTH_REMOVE(unlink)
HEARTH_REMOVE(rmdir)

int unlinkat(int folder, const char* path, int flags) {
  const std::string whole = path_at(folder, path);
  return traced(whole, "remove " + whole,
                [&] { return next<int (*)(int, const char*, int)>("unlinkat")(folder, path, flags); });
}

int clock_gettime(clockid_t clock, timespec* time) {
  const int result = next<int (*)(clockid_t, timespec*)>("clock_gettime")(clock, time);
  if (clock == CLOCK_REALTIME) time->tv_sec -= lost_seconds();
  return result;
}

time_t time(time_t* out) {
  const time_t now = next<time_t (*)(time_t*)>("time")(nullptr) - lost_seconds();
  if (out != nullptr) *out = now;
  return now;
}

int gettimeofday(timeval* time, void* zone) {
  const int result = next<int (*)(timeval*, void*)>("gettimeofday")(time, zone);
  time->tv_sec -= lost_seconds();
  return result;
}
}
