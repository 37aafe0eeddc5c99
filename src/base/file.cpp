#include "base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/flush.h"
#include "base/temporary.h"

namespace hearth {
namespace {

[[noreturn]] void system_error(const char* action, const fs::path& path) {
  const int code = errno;
  const char* hint = code == ENOSPC ? "; free some space there and run again" : "";
  user_error("cannot {} {}: {}{}", action, path.string(), std::strerror(code), hint);
}

/// A file descriptor, closed by the destructor. Opening a pipe without a writer does not block.
class Descriptor {
 public:
  Descriptor(const fs::path& path, int flags) : value_(open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK)) {
    if (value_ < 0) system_error("open", path);
  }
  ~Descriptor() { close(value_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int value() const { return value_; }

 private:
  int value_;
};

size_t regular_file_size(const Descriptor& file, const fs::path& path) {
  struct stat info {};
  if (fstat(file.value(), &info) != 0) system_error("read", path);
  if (S_ISDIR(info.st_mode)) user_error("expected a file at {}, found a folder", path.string());
  if (!S_ISREG(info.st_mode)) {
    user_error("{} is a pipe, a socket or a device; copy its data to a regular file and use that",
               path.string());
  }
  return static_cast<size_t>(info.st_size);
}

void refuse_pointer(std::string_view contents, const fs::path& path) {
  if (!contents.starts_with("version https://git-lfs.github.com/spec/v1\n")) return;
  user_error(
      "{} is a git-lfs pointer, not the file itself; download the file with git lfs pull in its folder, or "
      "with hf download",
      path.string());
}

/// Table of the mapped files, read by the SIGBUS handler. Fixed size and without locks, because a signal
/// handler must not allocate or block. If the table is full, the handler's message cannot name further files.
struct MappedEntry {
  std::atomic<bool> in_use{false};
  std::atomic<uintptr_t> begin{0}, end{0};
  std::array<char, 480> path;
};
std::array<MappedEntry, 256> mapped_files;

MappedEntry* find_mapped(const void* at) {
  const auto address = reinterpret_cast<uintptr_t>(at);
  for (MappedEntry& entry : mapped_files) {
    if (address >= entry.begin && address < entry.end) return &entry;
  }
  return nullptr;
}

void remember_mapped(const std::byte* data, size_t size, const fs::path& path) {
  for (MappedEntry& entry : mapped_files) {
    if (entry.in_use.exchange(true)) continue;
    const std::string& name = path.native();
    const size_t length = std::min(name.size(), entry.path.size() - 1);
    const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
    std::replace_copy_if(name.begin(), name.begin() + static_cast<std::ptrdiff_t>(length), entry.path.begin(),
                         is_control, '?');
    entry.path.at(length) = 0;
    entry.begin = reinterpret_cast<uintptr_t>(data);
    entry.end = entry.begin + size;
    return;
  }
}

void forget_mapped(const std::byte* data) {
  MappedEntry* const entry = find_mapped(data);
  if (entry == nullptr) return;
  entry->begin = entry->end = 0;
  entry->in_use = false;
}

void put_on_stderr(const char* text) {
  if (::write(STDERR_FILENO, text, std::strlen(text)) < 0) return;
}

void on_sigbus(int signal, siginfo_t* info, void*) {
  const MappedEntry* const entry = find_mapped(info->si_addr);
  put_on_stderr("hearth: ");
  if (entry == nullptr) {
    put_on_stderr(
        "a page of memory cannot be read: /dev/shm is full, or a file was truncated while it was read; free "
        "some space and run again\n");
    std::signal(signal, SIG_DFL);
    return;  // returns to the faulting instruction, which ends the process by the default action
  }
  put_on_stderr(entry->path.data());
  put_on_stderr(
      ": the file was truncated while it was read, or its disk failed; restore the file and run again, a "
      "training run with --resume\n");
  _exit(2);
}

}  // namespace

void install_sigbus_handler() {
  struct sigaction action = {};
  action.sa_sigaction = on_sigbus;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

MappedFile::MappedFile(const fs::path& path) : MappedFile() {
  const Descriptor file(path, O_RDONLY);
  size_ = regular_file_size(file, path);
  if (size_ == 0) return;
  void* mapped = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.value(), 0);
  if (mapped == MAP_FAILED) system_error("map", path);
  data_ = static_cast<const std::byte*>(mapped);
  remember_mapped(data_, size_, path);
  refuse_pointer({static_cast<const char*>(mapped), size_}, path);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  forget_mapped(data_);
  munmap(const_cast<std::byte*>(data_), size_);
}

std::string read_file(const fs::path& path, int64_t limit_bytes) {
  const Descriptor file(path, O_RDONLY);
  const size_t size = regular_file_size(file, path);
  if (static_cast<int64_t>(size) > limit_bytes) {
    user_error("expected a file of at most {} bytes at {}, found {} bytes", limit_bytes, path.string(), size);
  }
  std::string contents(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t count = read(file.value(), contents.data() + done, size - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) system_error("read", path);
    if (count == 0) break;
    done += static_cast<size_t>(count);
  }
  contents.resize(done);
  refuse_pointer(contents, path);
  return contents;
}

FileWriter::FileWriter(fs::path path, Existing existing) : path_(std::move(path)) {
  const int start = existing == Existing::replaced ? O_TRUNC : O_APPEND;
  descriptor_ = open(path_.c_str(), O_WRONLY | O_CREAT | start | O_CLOEXEC, 0644);
  if (descriptor_ < 0) system_error("create", path_);
}

FileWriter::~FileWriter() {
  if (descriptor_ >= 0) close(descriptor_);
}

void FileWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) system_error("write", path_);
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

void FileWriter::write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }

void FileWriter::sync_and_close() {
  if (flush_to_disk(descriptor_) != 0) system_error("flush", path_);
  const int descriptor = std::exchange(descriptor_, -1);
  if (close(descriptor) != 0 && errno != EINTR) system_error("close", path_);
}

bool path_exists(const fs::path& path) {
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  if (status.type() == fs::file_type::none) user_error("cannot access {}: {}", path.string(), code.message());
  return status.type() != fs::file_type::not_found;
}

std::vector<fs::path> list_folder(const fs::path& folder) {
  // std::filesystem iterators terminate the program when memory is exhausted, so opendir is used.
  struct Close {
    void operator()(DIR* stream) const { closedir(stream); }
  };
  std::vector<fs::path> paths;
  const std::unique_ptr<DIR, Close> stream(opendir(folder.c_str()));
  if (stream == nullptr && errno == ENOENT) return paths;
  if (stream == nullptr) system_error("list the folder", folder);
  while (true) {
    errno = 0;
    const dirent* const entry = readdir(stream.get());
    if (entry == nullptr && errno != 0) system_error("list the folder", folder);
    if (entry == nullptr) return paths;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") paths.push_back(folder / name);
  }
}

void sync_folder(const fs::path& folder) {
  const Descriptor directory(folder, O_RDONLY | O_DIRECTORY);
  // EINVAL: some FUSE and network file systems cannot flush a folder.
  if (flush_to_disk(directory.value()) != 0 && errno != EINVAL) system_error("flush", folder);
}

void rename_durably(const fs::path& from, const fs::path& to) {
  std::error_code code;
  if (fs::exists(to, code) && !fs::is_regular_file(to, code))
    user_error("cannot write a file at {}: it is not a regular file; use another name", to.string());
  fs::rename(from, to, code);
  if (code) user_error("cannot rename {} to {}: {}", from.string(), to.string(), code.message());
  const fs::path parent = to.parent_path();
  sync_folder(parent.empty() ? fs::path(".") : parent);
}

void make_folder(const fs::path& folder) {
  std::error_code code;
  std::vector<fs::path> missing;
  for (fs::path path = folder; !path.empty() && !fs::exists(path, code); path = path.parent_path()) {
    missing.push_back(path);
    if (path == path.parent_path()) break;
  }
  fs::create_directories(folder, code);
  if (code) user_error("cannot create the folder {}: {}", folder.string(), code.message());
  for (const fs::path& path : missing) sync_folder(path.has_parent_path() ? path.parent_path() : ".");
}

WatchedFolder::WatchedFolder(fs::path path)
    : path_(std::move(path)), descriptor_(open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (descriptor_ < 0) system_error("open", path_);
}

WatchedFolder::~WatchedFolder() { close(descriptor_); }

void WatchedFolder::check() const {
  struct stat held {
  }, found{};
  if (fstat(descriptor_, &held) != 0) system_error("look at", path_);
  const bool is_there = stat(path_.c_str(), &found) == 0;
  if (!is_there && errno != ENOENT && errno != ENOTDIR) system_error("look at", path_);
  if (is_there && held.st_dev == found.st_dev && held.st_ino == found.st_ino) return;
  // /proc/self/fd shows the current path of an open folder, even after the folder was moved.
  std::error_code unknown;
  const fs::path now = fs::read_symlink(fmt::format("/proc/self/fd/{}", descriptor_), unknown);
  if (!unknown && fs::is_directory(now, unknown))
    user_error("the run folder {} was moved to {} while the run wrote to it; resume there: hearth resume {}",
               path_.string(), now.string(), now.string());
  user_error(
      "the run folder {} was deleted or replaced while the run wrote to it, and its checkpoints are gone; "
      "start the run again",
      path_.string());
}

void replace_file(const fs::path& path, FunctionRef<void(const fs::path&)> write) {
  const Temporary temporary(path, Temporary::Kind::file);
  write(temporary.path());
  rename_durably(temporary.path(), path);
}

void write_file_atomically(const fs::path& path, std::string_view contents) {
  std::error_code unknown;
  // System links such as /dev/stdout are written through; any other link is replaced by the new file.
  const bool follows = path.native().starts_with("/dev/") || path.native().starts_with("/proc/");
  if (const fs::file_status status = follows ? fs::status(path, unknown) : fs::symlink_status(path, unknown);
      fs::is_character_file(status) || fs::is_fifo(status)) {
    FileWriter(path).write(contents);
    return;
  }
  replace_file(path, [&](const fs::path& temporary) {
    FileWriter writer(temporary);
    writer.write(contents);
    writer.sync_and_close();
  });
}

}  // namespace hearth
