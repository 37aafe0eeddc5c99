#include "system/tree.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "base/text.h"

namespace hearth::system {
/// Reads in one pass without the file size: files in /proc and /sys report size 0, and some drivers refuse to
/// continue a read.
std::string read_start(std::string_view path) {
  const int file = open(std::string(path).c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY);
  if (file < 0) return "";
  constexpr size_t kFirstBytes = 1 << 12;
  std::string text(kFirstBytes, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t count = read(file, text.data() + size, text.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    size += static_cast<size_t>(count);
    if (size == text.size()) text.resize(std::min<size_t>(Tree::kMaxFileBytes, 16 * size));
  }
  close(file);
  text.resize(size);
  return text;
}

std::optional<int64_t> number_of(std::string_view text) {
  text = trimmed(text);
  const bool hexadecimal = text.starts_with("0x");
  if (hexadecimal) text.remove_prefix(2);
  int64_t number = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), number, hexadecimal ? 16 : 10);
  return end.ec == std::errc{} ? std::optional(number) : std::nullopt;
}

Tree::Tree(fs::path root) : root_(std::move(root)), reader_(read_start) {}

const std::string& Tree::text(const std::string& path) {
  const auto found = read_.find(path);
  if (found != read_.end()) return found->second;
  if (!exists(path)) return read_[path];
  const std::optional<std::string> answer = reader_.ask((root_ / path).string(), kSeconds);
  if (!answer) blocked_.push_back(path);
  return read_[path] = answer.value_or("");
}

std::string Tree::line(const std::string& path) {
  std::string_view rest = text(path);
  return std::string(trimmed(take_line(rest)));
}

std::optional<int64_t> Tree::number(const std::string& path) { return number_of(line(path)); }

std::optional<int64_t> Tree::number(const std::string& path, std::string_view name) {
  return number_of(value(path, name));
}

std::string Tree::value(const std::string& path, std::string_view name) {
  for (std::string_view rest = text(path); !rest.empty();) {
    std::string_view one = take_line(rest);
    if (!one.starts_with(name)) continue;
    one.remove_prefix(name.size());
    if (!one.empty() && (one[0] == ':' || one[0] == ' ' || one[0] == '\t'))
      return std::string(trimmed(one.substr(1)));
  }
  return "";
}

bool Tree::exists(const std::string& path) const {
  std::error_code error;
  return fs::exists(root_ / path, error);
}

std::vector<std::string> Tree::list(const std::string& folder) const {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(root_ / folder, error), end;
       at != end && !error && names.size() < kMaxEntries; at.increment(error))
    names.push_back(at->path().filename().string());
  std::ranges::sort(names);
  return names;
}

std::string Tree::link_name(const std::string& path) const {
  std::error_code error;
  const fs::path target = fs::read_symlink(root_ / path, error);
  return error ? "" : target.filename().string();
}

std::string Tree::resolved(const std::string& path) const {
  std::error_code error;
  const fs::path real = fs::canonical(root_ / path, error);
  if (error) return path;
  const fs::path below = real.lexically_relative(fs::canonical(root_, error));
  return below.string().starts_with("..") ? path : below.string();
}

}  // namespace hearth::system
