#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "base/error.h"
#include "base/text.h"
#include "data/class_files.h"
#include "data/csv_cells.h"
#include "data/images/image.h"

namespace hearth::data {
namespace {

constexpr size_t kMaxCells = 4096;

constexpr auto kFileColumns =
    std::to_array<std::string_view>({"file", "filename", "file_name", "filepath", "path", "image",
                                     "image_path", "image_name", "image_id", "img", "id", "id_code", "name"});
constexpr auto kLabelColumns = std::to_array<std::string_view>(
    {"label", "labels", "class", "class_name", "category", "target", "species", "breed", "y"});
constexpr auto kSplitColumns = std::to_array<std::string_view>({"split", "subset", "set", "partition"});

struct Line {
  std::string_view text;
  int64_t number = 0;
};

/// Returns the lines that are not blank, without a byte order mark (BOM).
std::vector<Line> lines_of(std::string_view text) {
  std::string_view rest = without_bom(text);
  std::vector<Line> lines;
  for (int64_t number = 1; !rest.empty(); ++number) {
    const std::string_view line = trimmed(take_line(rest));
    if (!line.empty()) lines.push_back({line, number});
  }
  return lines;
}

/// Column indices of a table.
struct Columns {
  size_t file = 0, label = 1;
  std::optional<size_t> split;
  bool has_header = false;
};

std::optional<size_t> find_column(const std::vector<std::string>& header,
                                  std::span<const std::string_view> names) {
  for (const std::string_view name : names)
    for (size_t i = 0; i < header.size(); ++i)
      if (lowered(header[i]) == name) return i;
  return std::nullopt;
}

/// Detects the columns from the header; nullopt if no column name is a known name for the file or for the
/// label.
std::optional<Columns> columns_of(const std::vector<std::string>& first,
                                  const std::vector<std::string>& second) {
  const auto file = find_column(first, kFileColumns), label = find_column(first, kLabelColumns);
  Columns columns{.split = find_column(first, kSplitColumns)};
  const bool names_images = !is_image_file(first[0]) && !second.empty() && is_image_file(second[0]);
  columns.has_header = file || label || names_images;
  if (first.size() == 2) {
    columns.file = file.value_or(label ? 1 - *label : 0);
    columns.label = 1 - columns.file;
    columns.split.reset();
    return columns;
  }
  if (!file || !label || file == label) return std::nullopt;
  columns.file = *file;
  columns.label = *label;
  return columns;
}

/// Returns the cells of line `i` of a table; empty if there is no such line.
std::vector<std::string> cells_at(const std::vector<Line>& lines, size_t i, std::string_view name,
                                  char separator) {
  if (i >= lines.size()) return {};
  std::vector<std::string> cells = csv_cells(lines[i].text, separator);
  if (cells.size() > kMaxCells)
    user_error("{}:{}: a line has more than {} cells", name, lines[i].number, kMaxCells);
  return cells;
}

}  // namespace

bool is_label_table(std::string_view text, char separator) {
  const std::vector<Line> lines = lines_of(text);
  return !lines.empty() && columns_of(cells_at(lines, 0, "", separator), cells_at(lines, 1, "", separator));
}

std::vector<LabelRow> parse_label_table(std::string_view text, std::string_view name, char separator) {
  const std::vector<Line> lines = lines_of(text);
  if (lines.empty()) user_error("{}: the table is empty; expected a line 'file,label' for each image", name);
  const std::vector<std::string> first = cells_at(lines, 0, name, separator);
  const auto columns = columns_of(first, cells_at(lines, 1, name, separator));
  if (!columns)
    user_error(
        "{}:{}: expected columns named file and label, got the columns '{}'; rename the columns with the "
        "image and its class",
        name, lines[0].number, shortened(fmt::format("{}", fmt::join(first, ", ")), 200));
  std::vector<LabelRow> rows;
  for (size_t i = columns->has_header ? 1 : 0; i < lines.size(); ++i) {
    std::vector<std::string> row = cells_at(lines, i, name, separator);
    if (row.size() != first.size() || row[columns->file].empty() || row[columns->label].empty())
      user_error("{}:{}: expected {} cells with a file and a label, got '{}'", name, lines[i].number,
                 first.size(), shortened(lines[i].text, 100));
    rows.push_back({.file = std::move(row[columns->file]),
                    .label = std::move(row[columns->label]),
                    .split = columns->split ? lowered(row[*columns->split]) : "",
                    .line = lines[i].number});
  }
  return rows;
}

std::vector<LabelRow> parse_label_list(std::string_view text, std::string_view name) {
  std::vector<LabelRow> rows;
  for (const Line& line : lines_of(text)) {
    if (line.text[0] == '#') continue;
    LabelRow row{.file = std::string(line.text), .label = "", .split = "", .line = line.number};
    const size_t blank = line.text.find_last_of(" \t");
    if (!is_image_file(row.file) && blank != std::string_view::npos) {
      row.label = std::string(line.text.substr(blank + 1));
      row.file = std::string(trimmed(line.text.substr(0, blank)));
    }
    rows.push_back(std::move(row));
  }
  if (rows.empty()) user_error("{}: the list is empty; expected a line 'file label' for each image", name);
  return rows;
}

}  // namespace hearth::data
