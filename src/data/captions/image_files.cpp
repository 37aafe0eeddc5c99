#include "data/captions/image_files.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "data/images/image.h"

namespace hearth::data {
namespace {

/// Appends the files below a folder. `seen`: canonical paths of visited folders, to visit each once.
void add_files(const fs::path& folder, std::set<fs::path>& seen, std::vector<fs::path>& files) {
  std::error_code ignored;
  if (!seen.insert(fs::canonical(folder, ignored)).second) return;
  std::vector<fs::path> entries = list_folder(folder);
  // Sorts the entries, so that a folder that two links lead to gets the same path on every file system.
  std::ranges::sort(entries);
  for (const fs::path& path : entries) {
    if (path.filename().string()[0] == '.') continue;
    if (fs::is_directory(path, ignored)) {
      add_files(path, seen, files);
    } else {
      files.push_back(path.lexically_normal());
    }
  }
}

}  // namespace

std::vector<fs::path> files_below(const fs::path& folder) {
  std::set<fs::path> seen;
  std::vector<fs::path> files;
  add_files(folder, seen, files);
  std::ranges::sort(files);
  return files;
}

FolderName parse_folder_name(std::string_view name) {
  constexpr size_t kMaxDigits = 3;
  const size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
  if (digits == 0 || digits > kMaxDigits || name.substr(digits, 1) != "_") return {};
  int64_t repeats = 0;
  std::from_chars(name.data(), name.data() + digits, repeats);
  if (repeats == 0) return {};
  return {repeats, std::string(name.substr(digits + 1))};
}

std::vector<fs::path> sorted_images(const fs::path& folder) {
  std::vector<fs::path> files;
  for (fs::path& path : list_folder(folder))
    if (is_image_file(path) && path.filename().string()[0] != '.') files.push_back(std::move(path));
  std::ranges::sort(files);
  return files;
}

std::string read_text(const fs::path& path, int64_t max_bytes) {
  std::string text = read_file(path, max_bytes);
  text.erase(0, text.size() - without_bom(text).size());
  return text;
}

std::string describe_unread(const std::set<fs::path>& folders) {
  constexpr size_t kMaxNamed = 3;
  std::vector<std::string> names;
  for (const fs::path& folder : folders) {
    for (const fs::path& path : list_folder(folder)) {
      std::error_code ignored;
      const fs::path extension = path.extension();
      if (is_image_file(path) || extension == ".csv" || extension == ".tsv" ||
          path.filename().string()[0] == '.' || !fs::is_regular_file(path, ignored))
        continue;
      names.push_back(printable(path.string(), false));
    }
  }
  if (names.empty()) return "";
  std::ranges::sort(names);
  const char* files =
      names.size() == 1 ? "file in the folders of the images is" : "files in the folders of the images are";
  return fmt::format("{} {} not read ({} are): {}", names.size(), files, kImageFormats,
                     listed(names, kMaxNamed));
}

std::map<std::string, fs::path> image_files(const fs::path& folder) {
  std::map<std::string, fs::path> files;
  for (fs::path& path : sorted_images(folder)) {
    std::error_code ignored;
    if (!fs::is_regular_file(path, ignored)) continue;
    const auto [found, is_new] = files.try_emplace(path.stem().string(), path);
    if (!is_new) {
      user_error("{}: {} has the same name; keep one of them", found->second.string(),
                 path.filename().string());
    }
  }
  return files;
}

}  // namespace hearth::data
