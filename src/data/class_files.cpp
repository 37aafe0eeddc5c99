#include "data/class_files.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <span>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/text.h"
#include "base/utf8.h"
#include "data/captions/image_files.h"
#include "data/images/image.h"
#include "data/split_names.h"

namespace hearth::data {
namespace {

constexpr int64_t kMaxTableBytes = int64_t{1} << 30;

constexpr auto kListEndings = std::to_array<std::string_view>({".csv", ".tsv", ".txt"});
/// Extensions that are appended to file names in a table, because some tables omit the extension.
constexpr auto kImageEndings =
    std::to_array<std::string_view>({"", ".jpg", ".jpeg", ".png", ".JPG", ".JPEG", ".PNG", ".webp"});

/// An image file and the name of its class. `key`: path of the image in the dataset, which determines its
/// split.
struct Entry {
  fs::path path;
  std::string class_name, key;
};

/// Source of the images of a split: a folder with a folder per class, or a table or list of files.
struct Source {
  fs::path path;
  bool is_table = false;
};

struct Layout {
  Source train;
  std::optional<Source> held_out;  ///< nullopt: a fraction of `train` is held out
  std::vector<std::string> notes;
};

bool is_train_name(std::string_view text) {
  return find_split_name("train", [&](std::string_view name) { return name == text; }).has_value();
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

/// Lists the subfolders (`folders`) or image files of a folder, without hidden ones, in byte order: class
/// indices then do not depend on the locale.
std::vector<std::string> sorted_names(const fs::path& folder, bool folders) {
  std::vector<std::string> names;
  std::error_code code;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code)) {
    const std::string name = at->path().filename().string();
    std::error_code ignored;
    const bool wanted =
        folders ? at->is_directory(ignored) : at->is_regular_file(ignored) && is_image_file(name);
    if (wanted && name[0] != '.') names.push_back(name);
  }
  if (code) user_error("cannot list the folder {}: {}", folder.string(), code.message());
  std::sort(names.begin(), names.end());
  return names;
}

bool has_class_folders(const fs::path& folder) {
  return is_folder(folder) && !sorted_names(folder, true).empty();
}

std::vector<Source> class_folders(const fs::path& root, std::span<const std::string_view> names) {
  std::vector<Source> found;
  for (const std::string_view name : names)
    if (has_class_folders(root / name)) found.push_back({root / name});
  return found;
}

std::vector<Source> tables(const fs::path& folder, std::span<const std::string_view> names) {
  std::vector<Source> found;
  for (const std::string_view name : names)
    for (const std::string_view ending : kListEndings)
      if (fs::path file = folder / fmt::format("{}{}", name, ending); path_exists(file) && !is_folder(file))
        found.push_back({std::move(file), true});
  return found;
}

char separator_of(const fs::path& table) { return table.extension() == ".tsv" ? '\t' : ','; }

/// Removes tables without labels, and adds a note about each.
std::vector<Source> with_labels(std::vector<Source> found, Layout& layout) {
  std::erase_if(found, [&](const Source& source) {
    const fs::path& file = source.path;
    if (file.extension() == ".txt" || is_label_table(read_file(file, kMaxTableBytes), separator_of(file)))
      return false;
    layout.notes.push_back(fmt::format("{} is not read, because it has no labels", file.string()));
    return true;
  });
  return found;
}

/// Returns the first source, and adds a note about each other one that it is not read.
std::optional<Source> choose(const std::vector<Source>& found, Layout& layout) {
  if (found.empty()) return std::nullopt;
  for (size_t i = 1; i < found.size(); ++i)
    layout.notes.push_back(fmt::format("{} is not read, because {} is read instead", found[i].path.string(),
                                       found[0].path.string()));
  return found[0];
}

[[noreturn]] void refuse_layout(const fs::path& root) {
  const std::vector<std::string> folders =
      is_folder(root) ? sorted_names(root, true) : std::vector<std::string>();
  const std::string inner = folders.size() == 1 && has_class_folders(root / folders[0])
                                ? fmt::format("; set data.path={}", (root / folders[0]).string())
                                : "";
  user_error(
      "expected train/CLASS/*, CLASS/* (two classes or more), train.csv, train.txt or labels.csv in {}, "
      "found none{}",
      root.string(), inner);
}

/// Finds the image of a table row; nullopt if there is none. Throws a UserError for a path outside the
/// table's folder.
std::optional<fs::path> find_image(const fs::path& table, const LabelRow& row) {
  const fs::path folder = table.parent_path().empty() ? fs::path(".") : table.parent_path();
  const fs::path relative = fs::path(row.file).lexically_normal();
  if (relative.is_absolute() || *relative.begin() == "..")
    user_error("{}:{}: '{}' is outside the folder of the table; write paths relative to it", table.string(),
               row.line, shortened(row.file, 200));
  for (const fs::path& in : {folder, folder / "images", folder / table.stem()}) {
    for (const std::string_view ending : kImageEndings) {
      fs::path path = in / relative;
      path += ending;
      std::error_code ignored;
      if (fs::is_regular_file(path, ignored)) return path;
    }
  }
  return std::nullopt;
}

std::vector<LabelRow> read_rows(const fs::path& table) {
  if (!path_exists(table))
    user_error("expected a folder at data.path, found none at '{}'; set data.path=FOLDER", table.string());
  const std::string text = read_file(table, kMaxTableBytes);
  const std::string ending = table.extension().string();
  if (ending == ".txt") return parse_label_list(text, table.string());
  return parse_label_table(text, table.string(), separator_of(table));
}

/// True if an image of the first rows exists. Also true if the table cannot be read: its reader then reports
/// the error.
bool names_images(const fs::path& table) {
  constexpr size_t kMaxTried = 8;
  try {
    const std::vector<LabelRow> all = read_rows(table);
    return std::ranges::any_of(std::span(all).first(std::min(all.size(), kMaxTried)),
                               [&](const LabelRow& row) { return find_image(table, row).has_value(); });
  } catch (const UserError&) {
    return true;
  }
}

Layout find_layout(const fs::path& root) {
  Layout layout;
  if (!is_folder(root)) {
    layout.train = {root, true};
    if (is_train_name(root.stem().string()))
      layout.held_out = choose(with_labels(tables(root.parent_path(), split_names("test")), layout), layout);
    return layout;
  }
  if (const auto train = choose(class_folders(root, split_names("train")), layout)) {
    layout.train = *train;
    layout.held_out = choose(class_folders(root, split_names("test")), layout);
    return layout;
  }
  if (const auto train = choose(tables(root, split_names("train")), layout)) {
    layout.train = *train;
    layout.held_out = choose(with_labels(tables(root, split_names("test")), layout), layout);
    return layout;
  }
  constexpr auto kWholeNames = std::to_array<std::string_view>({"labels"});
  const auto whole = choose(tables(root, kWholeNames), layout);
  const bool is_plain =
      class_folders(root, split_names("test")).empty() && sorted_names(root, true).size() >= 2;
  if (whole && (!is_plain || names_images(whole->path))) {
    layout.train = *whole;
    return layout;
  }
  if (!is_plain) refuse_layout(root);
  // The folder has a folder per class, and the table refers to no image, so it can only describe the classes.
  if (whole) layout.notes.push_back(fmt::format("{} is not read: it names no images", whole->path.string()));
  layout.train = {root};
  return layout;
}

/// Lists the images in the class folders of `root`. Adds an error to `faults` for each of `classes` without a
/// folder or images, and for each folder that is not one of `classes`.
std::vector<Entry> read_folders(const fs::path& root, const std::vector<std::string>& classes,
                                std::vector<std::string>& faults) {
  std::vector<Entry> entries;
  for (const std::string& name : classes) {
    const fs::path folder = root / name;
    if (!is_folder(folder)) {
      faults.push_back(
          fmt::format("expected a folder for the class '{}' at {}, found none", name, folder.string()));
      continue;
    }
    const std::vector<std::string> files = sorted_names(folder, false);
    if (files.empty())
      faults.push_back(fmt::format("expected images ({}) in the class folder {}, found none", kImageFormats,
                                   folder.string()));
    for (const std::string& file : files)
      entries.push_back({folder / file, name, fmt::format("{}/{}", name, file)});
  }
  for (const std::string& name : sorted_names(root, true))
    if (std::ranges::find(classes, name) == classes.end())
      faults.push_back(fmt::format("{}: '{}' is not one of the trained classes ({}); rename or delete it",
                                   root.string(), name,
                                   shortened(fmt::format("{}", fmt::join(classes, ", ")), 200)));
  return entries;
}

/// Returns a row's class: its label, or the name of its image's folder.
std::string class_of(const LabelRow& row, const fs::path& path) {
  return row.label.empty() ? path.parent_path().filename().string() : row.label;
}

/// The images of a table, by split. If the table has no column for the split, all are in `train`.
struct Table {
  std::vector<Entry> train, held_out;
  bool has_splits = false;
};

Table read_table(const fs::path& path, std::vector<std::string>& faults) {
  Table table;
  for (const LabelRow& row : read_rows(path)) {
    const auto image = find_image(path, row);
    if (!image) {
      faults.push_back(fmt::format("{}:{}: there is no image '{}' in {}", path.string(), row.line,
                                   shortened(row.file, 200), path.parent_path().string()));
      continue;
    }
    table.has_splits |= !row.split.empty();
    const bool trains = row.split.empty() || is_train_name(row.split);
    (trains ? table.train : table.held_out).push_back({*image, class_of(row, *image), row.file});
  }
  return table;
}

std::optional<int64_t> number_of(const std::string& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

/// Returns the distinct class names, in numeric order if all are numbers, otherwise in byte order.
std::vector<std::string> sorted_labels(const std::vector<Entry>& entries) {
  std::vector<std::string> labels;
  for (const Entry& entry : entries) labels.push_back(entry.class_name);
  std::ranges::sort(labels);
  labels.erase(std::unique(labels.begin(), labels.end()), labels.end());
  if (std::ranges::all_of(labels, [](const std::string& label) { return number_of(label).has_value(); }))
    std::ranges::stable_sort(labels, {}, [](const std::string& label) { return *number_of(label); });
  return labels;
}

/// Returns for each entry whether it is held out: if a hash of its key, scaled to [0, 1), is below `share`. A
/// class of two or more entries has at least one in each split.
std::vector<bool> hold_out(const std::vector<Entry>& entries, double share) {
  std::map<std::string_view, std::vector<std::pair<double, size_t>>> classes;
  for (size_t i = 0; i < entries.size(); ++i)
    classes[entries[i].class_name].emplace_back(std::ldexp(static_cast<double>(hash64(entries[i].key)), -64),
                                                i);
  std::vector<bool> picked(entries.size());
  for (auto& [name, of_class] : classes) {
    std::ranges::sort(of_class);
    const auto below = std::ranges::count_if(of_class, [&](const auto& one) { return one.first < share; });
    const auto count = std::ssize(of_class);
    const int64_t held = share <= 0 || count < 2 ? 0 : std::clamp<int64_t>(below, 1, count - 1);
    for (int64_t i = 0; i < held; ++i) picked[of_class[static_cast<size_t>(i)].second] = true;
  }
  return picked;
}

std::vector<Entry> keep_split(std::vector<Entry> entries, const ClassFilesOptions& options,
                              ClassFiles& made) {
  const std::vector<bool> held_out = hold_out(entries, options.val_share);
  std::vector<Entry> kept;
  for (size_t i = 0; i < entries.size(); ++i)
    if (held_out[i] != options.is_training) kept.push_back(std::move(entries[i]));
  const auto count = std::ranges::count(held_out, true);
  if (count == 0)
    made.faults.push_back(fmt::format(
        "{}: no image is held out for validation; set data.val_share above 0, or add a folder or list 'val'",
        options.path.string()));
  made.notes.push_back(
      fmt::format("{} has no validation split: {} of {} images are held out, by a hash of their "
                  "names (data.val_share={})",
                  options.path.string(), count, held_out.size(), options.val_share));
  return kept;
}

/// Images of both splits, and the names of all classes.
struct Entries {
  std::vector<std::string> class_names;
  std::vector<Entry> train;
  std::optional<std::vector<Entry>> held_out;  ///< nullopt: a fraction of `train` is held out
};

Entries read_entries(const Layout& layout, const ClassFilesOptions& options, ClassFiles& made) {
  Entries all{.class_names = options.class_names};
  if (!layout.train.is_table) {
    if (all.class_names.empty()) all.class_names = sorted_names(layout.train.path, true);
    if (options.is_training || !layout.held_out)
      all.train = read_folders(layout.train.path, all.class_names, made.faults);
    if (layout.held_out) all.held_out.emplace();
    if (layout.held_out && !options.is_training)
      all.held_out = read_folders(layout.held_out->path, all.class_names, made.faults);
    return all;
  }
  std::vector<std::string> ignored;
  const bool is_needed = options.is_training || !layout.held_out;
  Table table = read_table(layout.train.path, is_needed ? made.faults : ignored);
  all.train = std::move(table.train);
  if (all.class_names.empty()) all.class_names = sorted_labels(all.train);
  if (table.has_splits) all.held_out = std::move(table.held_out);
  if (!table.has_splits && layout.held_out) {
    all.held_out.emplace();
    if (!options.is_training) all.held_out = read_table(layout.held_out->path, made.faults).train;
  }
  return all;
}

void check_name(const std::string& name, const fs::path& path) {
  if (valid_prefix(name) < name.size())
    user_error("{}: the class name '{}' is not UTF-8; rename it", path.string(), printable(name, false));
}

}  // namespace

ClassFiles list_class_files(const ClassFilesOptions& options) {
  const Layout layout = find_layout(options.path);
  ClassFiles made{.class_names = {}, .files = {}, .faults = {}, .notes = layout.notes};
  Entries all = read_entries(layout, options, made);
  made.class_names = std::move(all.class_names);
  for (const std::string& name : made.class_names) check_name(name, options.path);
  if (made.class_names.size() < 2)
    made.faults.push_back(fmt::format("expected at least two classes in {}, found {}",
                                      layout.train.path.string(), made.class_names.size()));
  std::vector<Entry> entries = !all.held_out         ? keep_split(std::move(all.train), options, made)
                               : options.is_training ? std::move(all.train)
                                                     : std::move(*all.held_out);
  std::map<std::string_view, int32_t> numbers;
  for (const std::string& name : made.class_names)
    numbers.emplace(name, static_cast<int32_t>(numbers.size()));
  for (Entry& entry : entries) {
    const auto found = numbers.find(entry.class_name);
    if (found != numbers.end()) {
      made.files.push_back({std::move(entry.path), found->second});
    } else {
      made.faults.push_back(
          fmt::format("{}: '{}' is not one of the trained classes ({}); rename or delete it",
                      entry.path.string(), shortened(entry.class_name, 60),
                      shortened(fmt::format("{}", fmt::join(made.class_names, ", ")), 200)));
    }
  }
  if (layout.train.is_table) return made;
  std::set<fs::path> folders;
  for (const LabeledFile& file : made.files) folders.insert(file.path.parent_path());
  if (std::string note = describe_unread(folders); !note.empty()) made.notes.push_back(std::move(note));
  return made;
}

}  // namespace hearth::data
