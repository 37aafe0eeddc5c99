#include "data/captions.h"

#include <algorithm>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "base/utf8.h"
#include "data/data_folder.h"
#include "data/image.h"
#include "data/picture_files.h"

namespace hearth::data {
namespace {

constexpr int64_t kMostCaptionBytes = int64_t{1} << 20;
constexpr size_t kMostNamed = 3;
constexpr std::string_view kTable = "metadata.jsonl";

std::string_view without_mark(std::string_view text) {
  return text.starts_with("\xEF\xBB\xBF") ? text.substr(3) : text;
}

struct Found {
  std::vector<fs::path> pictures, tables;
};

Found find_files(const fs::path& folder) {
  Found found;
  for (fs::path& path : files_below(folder)) {
    // Leaving them out would train on less than people see.
    if (is_unsupported_image_file(path))
      user_error("{}: this format is not read; convert it to {}, or move it away", path.string(),
                 kImageFormats);
    if (is_image_file(path)) {
      found.pictures.push_back(std::move(path));
    } else if (path.filename() == kTable) {
      found.tables.push_back(std::move(path));
    }
  }
  return found;
}

/// What the tables say, by the path of the picture.
std::map<fs::path, std::string> read_tables(const Found& found, DataFolder& folder) {
  std::map<fs::path, std::string> captions;
  for (const fs::path& table : found.tables) {
    const MappedFile file(table);
    const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
    for (CaptionLine& line : parse_caption_lines(text, table.string())) {
      const fs::path picture = (table.parent_path() / line.file_name).lexically_normal();
      const std::string where = fmt::format("{}:{}", table.string(), line.line);
      if (!std::ranges::binary_search(found.pictures, picture))
        user_error("{}: expected the name of an image in {}, got '{}', which is not there", where,
                   table.parent_path().string(), shortened(line.file_name, 200));
      folder.check(picture, where);
      if (!captions.emplace(picture, std::move(line.text)).second)
        user_error("{}: expected one caption of each picture, got a second one of '{}'", where,
                   shortened(line.file_name, 200));
    }
  }
  return captions;
}

std::optional<std::string> text_beside(fs::path picture) {
  const fs::path path = picture.replace_extension(".txt");
  if (!path_exists(path)) return std::nullopt;
  return parse_caption(read_file(path, kMostCaptionBytes), path.string());
}

std::string with_trigger(std::string caption, std::string_view trigger) {
  if (trigger.empty() || caption.find(trigger) != caption.npos) return caption;
  return caption.empty() ? std::string(trigger) : fmt::format("{}, {}", trigger, caption);
}

[[noreturn]] void refuse_missing(const fs::path& folder, const std::vector<fs::path>& missing,
                                 size_t num_pictures) {
  std::string names;
  for (size_t i = 0; i < std::min(missing.size(), kMostNamed); ++i)
    names += (i == 0 ? "" : ", ") + printable(missing[i].lexically_relative(folder).string(), false);
  fs::path text = missing[0].filename();
  text.replace_extension(".txt");
  user_error(
      "expected a caption for each of the {} pictures in {}, found none for {} of them ({}{}); write {} "
      "beside the first, or its line of metadata.jsonl",
      num_pictures, folder.string(), missing.size(), names, missing.size() > kMostNamed ? ", ..." : "",
      printable(text.string(), false));
}

void measure(CaptionedPicture& picture, Exif exif) {
  const MappedFile file(picture.file);
  const ImageHeader header = read_image_header(file.bytes(), picture.file.string());
  picture.exif = header.orientation == 1 ? Exif::apply : exif;
  picture.size = header.size(picture.exif);
}

std::string read_field(JsonReader& reader, std::string_view key, std::string_view where) {
  if (reader.peek() != '"') user_error("{}: expected text for \"{}\"", where, key);
  return reader.read_string();
}

CaptionLine read_line(std::string_view text, std::string_view where) {
  std::optional<std::string> file_name, caption, prompt;
  JsonReader reader(text);
  if (reader.peek() != '{') user_error("{}: expected an object with file_name and text", where);
  reader.read_object([&](const std::string& key) {
    if (key == "file_name") {
      file_name = read_field(reader, key, where);
    } else if (key == "text") {
      caption = read_field(reader, key, where);
    } else if (key == "prompt" && reader.peek() == '"') {
      prompt = read_field(reader, key, where);
    } else {
      reader.skip();
    }
  });
  reader.expect_end();
  if (!caption) caption = std::move(prompt);
  if (!file_name || !caption) {
    user_error("{}: expected \"file_name\" and \"text\" (or \"prompt\"), found no \"{}\"", where,
               file_name ? "text" : "file_name");
  }
  return {.file_name = *std::move(file_name), .text = *std::move(caption)};
}

}  // namespace

std::vector<CaptionLine> parse_caption_lines(std::string_view text, std::string_view name) {
  std::vector<CaptionLine> lines;
  std::string_view rest = without_mark(text);
  for (int64_t number = 1; !rest.empty(); ++number) {
    const std::string_view record = trimmed(take_line(rest));
    if (record.empty()) continue;
    const std::string where = fmt::format("{}:{}", name, number);
    try {
      lines.push_back(read_line(record, where));
    } catch (const JsonFault& fault) {
      user_error("{}: {}", where, fault.sentence);
    }
    lines.back().line = number;
  }
  return lines;
}

std::string parse_caption(std::string_view text, std::string_view name) {
  std::string_view rest = without_mark(text);
  if (const size_t valid = valid_prefix(rest); valid < rest.size())
    user_error("{}: expected a caption in UTF-8, but it breaks at byte {}; save it as UTF-8", name,
               valid + text.size() - rest.size() + 1);
  std::string caption;
  while (!rest.empty()) {
    const std::string_view line = trimmed(take_line(rest));
    if (!caption.empty() && !line.empty()) caption += ' ';
    caption += line;
  }
  return caption;
}

bool has_captions(const fs::path& folder) {
  return std::ranges::any_of(files_below(folder), [](const fs::path& path) {
    return path.filename() == kTable ||
           (is_image_file(path) && path_exists(fs::path(path).replace_extension(".txt")));
  });
}

std::vector<CaptionedPicture> read_captions(const fs::path& folder, std::string_view trigger, Exif exif,
                                            bool allow_outside, bool keep_damaged) {
  if (!fs::is_directory(folder))
    user_error("expected a folder of pictures with captions at '{}', found none; set data.path=FOLDER",
               folder.string());
  const fs::path root = folder.lexically_normal();
  const Found found = find_files(root);
  if (found.pictures.empty())
    user_error("expected images ({}) in {}, found none; set data.path=FOLDER", kImageFormats,
               folder.string());
  DataFolder data_folder(root, allow_outside);
  std::map<fs::path, std::string> in_tables = read_tables(found, data_folder);
  std::vector<CaptionedPicture> pictures;
  std::vector<fs::path> missing;
  for (const fs::path& path : found.pictures) {
    const fs::path inside = path.lexically_relative(root).parent_path();
    const FolderName named = parse_folder_name(inside.filename().string());
    const auto in_table = in_tables.find(path);
    std::optional<std::string> caption =
        in_table == in_tables.end() ? text_beside(path) : std::move(in_table->second);
    if (!caption) caption = named.shows;
    if (!caption) missing.push_back(path);
    pictures.push_back({.file = path,
                        .caption = with_trigger(caption.value_or(""), trigger),
                        .size = {},
                        .repeats = named.repeats});
  }
  const bool stands_for_all = !trigger.empty() && missing.size() == pictures.size();
  if (!missing.empty() && !stands_for_all) refuse_missing(root, missing, pictures.size());
  for (CaptionedPicture& picture : pictures) {
    try {
      measure(picture, exif);
    } catch (const UserError&) {
      if (!keep_damaged) throw;
    }
  }
  return pictures;
}

ReadCheck check_captioned(const std::vector<CaptionedPicture>& pictures, int num_threads) {
  return check_reading(std::ssize(pictures), num_threads, [&](int64_t index) {
    const CaptionedPicture& picture = pictures[static_cast<size_t>(index)];
    const MappedFile file(picture.file);
    decode_image(file.bytes(), 3, picture.file.string(), picture.exif);
  });
}

std::string leave_out_bad(std::vector<CaptionedPicture>& pictures, int num_threads) {
  const ReadCheck check = check_captioned(pictures, num_threads);
  std::vector<CaptionedPicture> kept;
  for (const int64_t index : check.readable) kept.push_back(std::move(pictures[static_cast<size_t>(index)]));
  pictures = std::move(kept);
  return describe_skipped(check, "images with captions");
}

}  // namespace hearth::data
