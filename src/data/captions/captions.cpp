#include "data/captions/captions.h"

#include <algorithm>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "base/utf8.h"
#include "data/captions/image_files.h"
#include "data/data_folder.h"
#include "data/images/image.h"

namespace hearth::data {
namespace {

constexpr int64_t kMaxCaptionBytes = int64_t{1} << 20;
constexpr size_t kMaxNamed = 3;
constexpr std::string_view kTable = "metadata.jsonl", kCsvTable = "metadata.csv";
/// Extensions of caption files, in order of preference.
constexpr const char* kTextEndings[] = {".txt", ".caption"};

struct Found {
  std::vector<fs::path> images, tables, parquets;
};

bool is_below(const fs::path& path, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
}

Found find_files(const fs::path& folder) {
  Found found;
  const fs::path other = regularization_folder(folder);
  for (fs::path& path : files_below(folder)) {
    if (!other.empty() && is_below(path, other)) continue;
    // An image in an unsupported format is an error: if it were skipped, the run would silently train on
    // fewer images than the folder has.
    if (is_unsupported_image_file(path))
      user_error("{}: this image format is not supported; convert the file to {}, or move it away",
                 path.string(), kImageFormats);
    if (is_image_file(path)) {
      found.images.push_back(std::move(path));
    } else if (path.filename() == kTable || path.filename() == kCsvTable) {
      found.tables.push_back(std::move(path));
    } else if (path.extension() == ".parquet") {
      found.parquets.push_back(std::move(path));
    }
  }
  return found;
}

/// Reads all caption tables (metadata.jsonl, metadata.csv); returns captions by image path.
std::map<fs::path, std::string> read_tables(const Found& found, DataFolder& folder) {
  std::map<fs::path, std::string> captions;
  for (const fs::path& table : found.tables) {
    const MappedFile file(table);
    const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
    const bool is_csv = table.filename() == kCsvTable;
    for (CaptionLine& line :
         is_csv ? parse_caption_csv(text, table.string()) : parse_caption_lines(text, table.string())) {
      const fs::path image = (table.parent_path() / line.file_name).lexically_normal();
      const std::string where = fmt::format("{}:{}", table.string(), line.line);
      if (!std::ranges::binary_search(found.images, image))
        user_error("{}: expected the name of an image in {}, but '{}' does not exist", where,
                   table.parent_path().string(), shortened(line.file_name, 200));
      folder.check(image, where);
      if (!captions.emplace(image, std::move(line.text)).second)
        user_error("{}: '{}' has a second caption here; delete one", where, shortened(line.file_name, 200));
    }
  }
  return captions;
}

std::optional<std::string> text_file_of(fs::path image) {
  for (const char* ending : kTextEndings) {
    const fs::path path = image.replace_extension(ending);
    if (path_exists(path)) return parse_caption(read_file(path, kMaxCaptionBytes), path.string());
  }
  return std::nullopt;
}

/// Throws a UserError for a Parquet file, which no library of Debian 12 reads, with a command that converts
/// it.
[[noreturn]] void refuse_parquet(const fs::path& folder, const fs::path& file) {
  user_error(
      "{0}: Parquet is not supported; convert it to images and captions: python3 -c \"import datasets, json, "
      "os; "
      "os.makedirs('{1}'); t = open('{1}/metadata.jsonl', 'w'); "
      "[(r['image'].convert('RGB').save(f'{1}/{{i}}.png'), "
      "t.write(json.dumps(dict(file_name=f'{{i}}.png', text=r['text'])) + chr(10))) for i, r in "
      "enumerate(datasets.load_dataset('{2}', split='train'))]\", then set data.path={1}",
      file.string(), (folder / "images").string(), folder.string());
}

std::string with_trigger(std::string caption, std::string_view trigger) {
  if (trigger.empty() || caption.find(trigger) != caption.npos) return caption;
  return caption.empty() ? std::string(trigger) : fmt::format("{}, {}", trigger, caption);
}

[[noreturn]] void refuse_missing(const fs::path& folder, const std::vector<fs::path>& missing,
                                 size_t num_images) {
  std::vector<std::string> names;
  for (const fs::path& path : missing)
    names.push_back(printable(path.lexically_relative(folder).string(), false));
  fs::path text = missing[0].filename();
  text.replace_extension(".txt");
  user_error(
      "expected a caption for each of the {} images in {}, found none for {} of them ({}); write {} into the "
      "folder of the first such image, or add a line for it to metadata.jsonl",
      num_images, folder.string(), missing.size(), listed(names, kMaxNamed), printable(text.string(), false));
}

void measure(CaptionedImage& image, Exif exif) {
  const MappedFile file(image.file);
  const ImageHeader header = read_image_header(file.bytes(), image.file.string());
  image.exif = header.orientation == 1 ? Exif::apply : exif;
  image.size = header.size(image.exif);
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

/// Reads the records of a CSV file. Quoted fields may contain commas, newlines and doubled quotes.
class CsvReader {
 public:
  CsvReader(std::string_view text, std::string_view name) : text_(text), name_(name) {}

  bool at_end() const { return at_ >= text_.size(); }
  /// Line number of the next record, from 1.
  int64_t line() const { return line_; }
  std::vector<std::string> next() {
    std::vector<std::string> fields;
    do fields.push_back(field());
    while (take(','));
    take('\r');
    if (!at_end() && !take('\n'))
      user_error("{}:{}: expected a comma or the end of the line after a field in quotes", name_, line_);
    ++line_;
    return fields;
  }

 private:
  bool take(char c) {
    if (at_end() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  std::string field() {
    if (take('"')) return quoted();
    const size_t end = std::min(text_.find_first_of(",\r\n", at_), text_.size());
    std::string found(text_.substr(at_, end - at_));
    at_ = end;
    return found;
  }
  std::string quoted() {
    std::string found;
    const int64_t first = line_;
    for (; !at_end(); ++at_) {
      if (text_[at_] == '"') {
        ++at_;
        if (at_end() || text_[at_] != '"') return found;
      }
      line_ += text_[at_] == '\n' ? 1 : 0;
      found += text_[at_];
    }
    user_error("{}:{}: expected the end of a field in quotes", name_, first);
  }

  std::string_view text_, name_;
  size_t at_ = 0;
  int64_t line_ = 1;
};

}  // namespace

std::vector<CaptionLine> parse_caption_lines(std::string_view text, std::string_view name) {
  std::vector<CaptionLine> lines;
  std::string_view rest = without_bom(text);
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

std::vector<CaptionLine> parse_caption_csv(std::string_view text, std::string_view name) {
  CsvReader reader(without_bom(text), name);
  const std::vector<std::string> columns = reader.next();
  const auto column = [&](std::string_view one) { return std::ranges::find(columns, one) - columns.begin(); };
  const auto none = std::ssize(columns);
  const auto file = column("file_name"), caption = column("text") < none ? column("text") : column("prompt");
  if (file == none || caption == none)
    user_error("{}:1: expected the columns file_name and text, got {}", name,
               shortened(text.substr(0, text.find('\n')), 200));
  std::vector<CaptionLine> lines;
  while (!reader.at_end()) {
    const int64_t line = reader.line();
    std::vector<std::string> fields = reader.next();
    if (fields.size() == 1 && fields[0].empty()) continue;
    if (std::ssize(fields) != none)
      user_error("{}:{}: expected {} fields, as its first line has, got {}", name, line, none, fields.size());
    lines.push_back(
        {.line = line,
         .file_name = std::move(fields[static_cast<size_t>(file)]),
         .text = parse_caption(fields[static_cast<size_t>(caption)], fmt::format("{}:{}", name, line))});
  }
  return lines;
}

std::string parse_caption(std::string_view text, std::string_view name) {
  std::string_view rest = without_bom(text);
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
    if (path.filename() == kTable || path.filename() == kCsvTable) return true;
    return is_image_file(path) && std::ranges::any_of(kTextEndings, [&](const char* ending) {
             return path_exists(fs::path(path).replace_extension(ending));
           });
  });
}

std::vector<CaptionedImage> read_captions(const fs::path& folder, std::string_view trigger, Exif exif,
                                          bool allow_outside, bool keep_damaged) {
  if (!fs::is_directory(folder))
    user_error("expected a folder of images with captions at '{}', found none; set data.path=FOLDER",
               folder.string());
  const fs::path root = folder.lexically_normal();
  const Found found = find_files(root);
  if (found.images.empty() && !found.parquets.empty()) refuse_parquet(root, found.parquets[0]);
  if (found.images.empty())
    user_error("expected images ({}) in {}, found none; set data.path=FOLDER", kImageFormats,
               folder.string());
  DataFolder data_folder(root, allow_outside);
  std::map<fs::path, std::string> in_tables = read_tables(found, data_folder);
  std::vector<CaptionedImage> images;
  std::vector<fs::path> missing;
  for (const fs::path& path : found.images) {
    const fs::path inside = path.lexically_relative(root).parent_path();
    const FolderName named = parse_folder_name(inside.filename().string());
    const auto in_table = in_tables.find(path);
    std::optional<std::string> caption =
        in_table == in_tables.end() ? text_file_of(path) : std::move(in_table->second);
    using Source = CaptionedImage::Source;
    const Source source = caption ? Source::own : named.shows ? Source::folder : Source::none;
    if (!caption) caption = named.shows;
    if (!caption) missing.push_back(path);
    images.push_back({.file = path,
                      .caption = with_trigger(caption.value_or(""), trigger),
                      .source = source,
                      .size = {},
                      .repeats = named.repeats});
  }
  const bool stands_for_all = !trigger.empty() && missing.size() == images.size();
  if (!missing.empty() && !stands_for_all) refuse_missing(root, missing, images.size());
  for (CaptionedImage& image : images) {
    try {
      measure(image, exif);
    } catch (const UserError&) {
      if (!keep_damaged) throw;
    }
  }
  return images;
}

ReadCheck check_captioned(const std::vector<CaptionedImage>& images, int num_threads) {
  return check_reading(std::ssize(images), num_threads, [&](int64_t index) {
    const CaptionedImage& image = images[static_cast<size_t>(index)];
    const MappedFile file(image.file);
    decode_image(file.bytes(), 3, image.file.string(), image.exif);
  });
}

std::string remove_unreadable(std::vector<CaptionedImage>& images, int num_threads) {
  const ReadCheck check = check_captioned(images, num_threads);
  std::vector<CaptionedImage> kept;
  for (const int64_t index : check.readable) kept.push_back(std::move(images[static_cast<size_t>(index)]));
  images = std::move(kept);
  return describe_skipped(check, "images with captions");
}

std::string describe_captions(const std::vector<CaptionedImage>& images) {
  using Source = CaptionedImage::Source;
  const auto count = [&](Source source) {
    return std::ranges::count(images, source, &CaptionedImage::source);
  };
  std::string text = fmt::format("{} captions from files", count(Source::own));
  if (const auto named = count(Source::folder); named > 0)
    text += fmt::format(", {} from the folder's name", named);
  if (const auto none = count(Source::none); none > 0) text += fmt::format(", {} without", none);
  return text;
}

fs::path regularization_folder(const fs::path& folder) {
  fs::path found = (folder / "reg").lexically_normal();
  for (const fs::path& path : list_folder(found))
    if (fs::is_directory(path) && parse_folder_name(path.filename().string()).shows) return found;
  return {};
}

}  // namespace hearth::data
