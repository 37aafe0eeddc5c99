// For LD_PRELOAD. Every open of a path that contains HEARTH_FAULT_PATH fails with the errno HEARTH_FAULT;
// every fsync and rename is a line of the file HEARTH_TRACE: "fsync PATH", "rename FROM TO".
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

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

void trace(const std::string& line) {
  const char* file = std::getenv("HEARTH_TRACE");
  if (file == nullptr) return;
  const int kept = errno;
  const int out = next<int (*)(const char*, int, ...)>("open")(file, O_WRONLY | O_APPEND | O_CREAT, 0644);
  if (out >= 0) {
    if (write(out, line.data(), line.size()) < 0) std::abort();
    close(out);
  }
  errno = kept;
}

mode_t mode_of(int flags, va_list arguments) {
  return (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
}

}  // namespace

extern "C" {

#define HEARTH_OPEN(name)                                                  \
  int name(const char* path, int flags, ...) {                             \
    if (fails(path)) return -1;                                            \
    va_list arguments;                                                     \
    va_start(arguments, flags);                                            \
    const mode_t mode = mode_of(flags, arguments);                         \
    va_end(arguments);                                                     \
    return next<int (*)(const char*, int, ...)>(#name)(path, flags, mode); \
  }
HEARTH_OPEN(open)
HEARTH_OPEN(open64)

#define HEARTH_OPENAT(name)                                                             \
  int name(int folder, const char* path, int flags, ...) {                              \
    if (fails(path)) return -1;                                                         \
    va_list arguments;                                                                  \
    va_start(arguments, flags);                                                         \
    const mode_t mode = mode_of(flags, arguments);                                      \
    va_end(arguments);                                                                  \
    return next<int (*)(int, const char*, int, ...)>(#name)(folder, path, flags, mode); \
  }
HEARTH_OPENAT(openat)
HEARTH_OPENAT(openat64)

DIR* opendir(const char* path) {
  return fails(path) ? nullptr : next<DIR* (*)(const char*)>("opendir")(path);
}

int fsync(int descriptor) {
  char path[4096] = "";
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t size = readlink(link.c_str(), path, sizeof(path) - 1);
  trace("fsync " + std::string(path, size < 0 ? 0 : static_cast<size_t>(size)) + "\n");
  return next<int (*)(int)>("fsync")(descriptor);
}

int rename(const char* from, const char* to) {
  trace(std::string("rename ") + from + " " + to + "\n");
  return next<int (*)(const char*, const char*)>("rename")(from, to);
}
}
