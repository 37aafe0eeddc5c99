#include "ui/log_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace hearth::ui {
namespace {

constexpr int64_t kChunkBytes = 1 << 20;

/// A log file that is open for reading, unless it is missing or not a regular file.
class OpenLog {
 public:
  explicit OpenLog(const fs::path& path)
      : descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW)) {
    if (descriptor_ >= 0 && (fstat(descriptor_, &info_) != 0 || !S_ISREG(info_.st_mode))) {
      close(descriptor_);
      descriptor_ = -1;
    }
  }
  ~OpenLog() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  OpenLog(const OpenLog&) = delete;
  OpenLog& operator=(const OpenLog&) = delete;

  bool is_open() const { return descriptor_ >= 0; }
  int64_t size() const { return info_.st_size; }
  uint64_t file_number() const { return info_.st_ino; }
  /// Returns up to `size` bytes from `offset`; fewer at the end of the file.
  std::string read(int64_t offset, int64_t size) const {
    std::string text(static_cast<size_t>(std::max<int64_t>(0, std::min(size, info_.st_size - offset))), '\0');
    const ssize_t count = pread(descriptor_, text.data(), text.size(), offset);
    text.resize(count < 0 ? 0 : static_cast<size_t>(count));
    return text;
  }

 private:
  int descriptor_;
  struct stat info_ {};
};

}  // namespace

bool LogReader::read(int64_t max_bytes, FunctionRef<void()> restart,
                     FunctionRef<void(std::string_view line, int64_t offset)> take) {
  const OpenLog file(log_);
  if (!file.is_open() || file.file_number() != file_number_ || file.size() < offset_) {
    if (offset_ > 0) restart();
    offset_ = 0;
    skips_line_ = false;
    file_number_ = file.is_open() ? file.file_number() : 0;
    if (!file.is_open()) return false;
  }
  const int64_t end = std::min(file.size(), offset_ + std::max(max_bytes, kChunkBytes));
  while (offset_ < end) {
    const std::string chunk = file.read(offset_, kChunkBytes);
    std::string_view rest = chunk;
    for (size_t size = rest.find('\n'); size != std::string_view::npos; size = rest.find('\n')) {
      if (!std::exchange(skips_line_, false)) take(rest.substr(0, size), offset_);
      offset_ += static_cast<int64_t>(size) + 1;
      rest.remove_prefix(size + 1);
    }
    if (rest.size() < chunk.size()) continue;
    if (static_cast<int64_t>(chunk.size()) < kChunkBytes) return false;  // the last line is incomplete
    skips_line_ = true;
    offset_ += kChunkBytes;
  }
  return offset_ < file.size();
}

std::string LogReader::read_part(int64_t begin, int64_t end) const {
  const OpenLog file(log_);
  return file.is_open() && file.file_number() == file_number_ ? file.read(begin, end - begin) : "";
}

}  // namespace hearth::ui
