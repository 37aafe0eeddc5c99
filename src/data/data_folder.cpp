#include "data/data_folder.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace hearth::data {
namespace {

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

/// True if `path` is `root` or below it; both are canonical.
bool is_below(const fs::path& path, const fs::path& root) {
  return std::ranges::mismatch(root, path).in1 == root.end();
}

std::string with_slashes(std::string name) {
  std::ranges::replace(name, '\\', '/');
  return name;
}

/// Decodes percent encoding: "a%20b" is "a b".
std::string percent_decoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    uint8_t code = 0;
    const char* digits = text.data() + i + 1;
    const bool is_code = text[i] == '%' && i + 2 < text.size() &&
                         std::from_chars(digits, digits + 2, code, 16).ptr == digits + 2;
    decoded += is_code ? static_cast<char>(code) : text[i];
    if (is_code) i += 2;
  }
  return decoded;
}

/// Returns the path in a URL; for Label Studio's local files ("/data/local-files/?d=a/b.jpg") the part after
/// "?d=".
std::string path_of_url(std::string_view name) {
  constexpr std::string_view kLocal = "?d=";
  if (const size_t at = name.find(kLocal); at != name.npos) {
    name.remove_prefix(at + kLocal.size());
  } else if (name.find("://") != name.npos) {
    name = name.substr(0, name.find('?'));
  }
  return percent_decoded(name);
}

/// Removes the prefix of eight hexadecimal digits and a dash that Label Studio adds to the names of uploaded
/// files.
std::string_view without_upload_prefix(std::string_view name) {
  constexpr size_t kDigits = 8;
  if (name.size() <= kDigits + 1 || name[kDigits] != '-') return name;
  if (name.substr(0, kDigits).find_first_not_of("0123456789abcdef") != name.npos) return name;
  return name.substr(kDigits + 1);
}

}  // namespace

DataFolder::DataFolder(const fs::path& path, bool allow_outside) : allow_outside_(allow_outside) {
  std::error_code code;
  root_ = fs::canonical(path, code);
  if (code) user_error("cannot open {}: {}", printable(path.string(), false), code.message());
  if (!fs::is_directory(root_, code)) root_ = root_.parent_path();
  const std::string name = root_.filename().string();
  if (name == "annotations" || name == "Annotations") root_ = root_.parent_path();
}

bool DataFolder::holds(const fs::path& file) {
  std::error_code code;
  if (fs::is_symlink(file, code)) {
    const fs::path target = fs::canonical(file, code);
    return !code && is_below(target, root_);
  }
  const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
  if (const auto known = folders_.find(folder); known != folders_.end()) return known->second;
  const fs::path target = fs::canonical(folder, code);
  return folders_[folder] = !code && is_below(target, root_);
}

void DataFolder::check(const fs::path& file, std::string_view where) {
  if (allow_outside_ || holds(file)) return;
  user_error("{}: {} is outside of the data's folder {}; set data.allow_outside=true to read it anyway",
             where, printable(file.string(), false), printable(root_.string(), false));
}

ImageFinder::ImageFinder(DataFolder& folder, std::vector<fs::path> roots)
    : folder_(folder), roots_(std::move(roots)) {}

std::optional<fs::path> ImageFinder::find_by_path(const std::string& name, std::string_view where) {
  for (const std::string& spelled : {name, with_slashes(name)}) {
    for (const fs::path& root : roots_) {
      fs::path file = (root / spelled).lexically_normal();
      if (!is_file(file)) continue;
      folder_.check(file, where);
      return file;
    }
  }
  return std::nullopt;
}

std::optional<fs::path> ImageFinder::find_by_end(std::string name) {
  // A longer name is no valid path. The limit matters because the loop over all suffixes of the name takes
  // quadratic time.
  constexpr size_t kMaxPath = 4096;
  if (name.size() > kMaxPath) return std::nullopt;
  name = with_slashes(path_of_url(name));
  std::vector<std::string> ends;
  for (size_t at = 0; at != name.npos && at < name.size();
       at = name.find('/', at) == name.npos ? name.npos : name.find('/', at) + 1)
    ends.push_back(name.substr(at));
  if (!ends.empty()) ends.emplace_back(without_upload_prefix(ends.back()));
  for (const std::string& end : ends) {
    if (end.empty() || end.starts_with('/') || end.starts_with("../")) continue;
    for (const fs::path& root : roots_) {
      fs::path file = (root / end).lexically_normal();
      if (is_file(file) && (folder_.allows_outside() || folder_.holds(file))) return file;
    }
  }
  return std::nullopt;
}

std::optional<fs::path> ImageFinder::find(const std::string& name, std::string_view where) {
  std::optional<fs::path> found = find_by_path(name, where);
  if (!found && (found = find_by_end(name))) ++num_shortened_;
  if (!found) return found;
  const auto [known, is_new] = names_.try_emplace(*found, name);
  if (!is_new && known->second != name)
    user_error("{}: '{}' and '{}' both lead to {}; name each image once", where,
               shortened(known->second, 200), shortened(name, 200), printable(found->string(), false));
  return found;
}

}  // namespace hearth::data
