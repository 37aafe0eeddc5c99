#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "data/boxes/boxes_format.h"
#include "data/boxes/label_json.h"
#include "data/csv_cells.h"

namespace hearth::data {
namespace {

enum Column : size_t { file, name_column, x0, y0, x1, y1, width, height, num_columns };
/// Accepted names of each column; the first one is Roboflow's.
constexpr std::array<std::array<std::string_view, 4>, num_columns> kNames = {{
    {"filename", "file", "image", "image_path"},
    {"class", "label", "class_name", ""},
    {"xmin", "x_min", "", ""},
    {"ymin", "y_min", "", ""},
    {"xmax", "x_max", "", ""},
    {"ymax", "y_max", "", ""},
    {"width", "", "", ""},
    {"height", "", "", ""},
}};
constexpr int kNumDemanded = 6;

/// Parses a table's header and returns the cell index of each column; the number of cells for a missing
/// optional column. Throws a UserError if a required column is missing.
std::array<size_t, num_columns> columns_of(std::string_view header, std::string_view where) {
  const std::vector<std::string> cells = csv_cells(header, ',');
  std::array<size_t, num_columns> columns{};
  for (size_t column = 0; column < columns.size(); ++column) {
    columns.at(column) = cells.size();
    for (const std::string_view candidate : kNames.at(column)) {
      const auto at = std::ranges::find(cells, candidate) - cells.begin();
      if (!candidate.empty() && columns.at(column) == cells.size())
        columns.at(column) = static_cast<size_t>(at);
    }
    if (column < kNumDemanded && columns.at(column) == cells.size())
      user_error("{}:1: expected columns filename, class, xmin, ymin, xmax and ymax, found no '{}'", where,
                 kNames.at(column)[0]);
  }
  return columns;
}

double number_of(const std::string& cell, std::string_view column, const std::string& where) {
  const auto value = parse_number(cell);
  if (!value) user_error("{}: expected a number for {}, got '{}'", where, column, shortened(cell, 60));
  return *value;
}

int64_t side_of(const std::string& cell, std::string_view column, const std::string& where) {
  const double side = cell.empty() ? 0 : number_of(cell, column, where);
  if (!(side >= 0 && side <= 1 << 20))
    user_error("{}: expected the side of an image in pixels for {}, got '{}'", where, column,
               shortened(cell, 60));
  return static_cast<int64_t>(side);
}

/// Reader of a table with one box per row: groups the boxes by the image name in their row.
class BoxTable {
 public:
  BoxTable(std::string_view header, std::string_view name) : columns_(columns_of(header, name)) {}

  /// Adds a row. If `skip_bad`, the error of an invalid row is stored in LabeledImage::fault of its image.
  void add(std::string_view row, const std::string& where, bool skip_bad) {
    const std::vector<std::string> cells = csv_cells(row, ',');
    const auto cell = [&](size_t column) {
      return columns_.at(column) < cells.size() ? cells[columns_.at(column)] : std::string();
    };
    const std::string name = cell(file);
    // A row without an image name becomes a separate image, which holds the error.
    const auto [at, is_new] = image_of_.try_emplace(name.empty() ? where : name, table_.images.size());
    if (is_new) table_.images.push_back({.file = name, .where = where});
    LabeledImage& image = table_.images[at->second];
    try {
      if (name.empty()) user_error("{}: expected the name of an image", where);
      if (is_new) {
        image.width = side_of(cell(width), "width", where);
        image.height = side_of(cell(height), "height", where);
      }
      add_object(cell, where, image);
    } catch (const UserError& error) {
      if (!skip_bad) throw;
      if (image.fault.empty()) image.fault = error.what();
    }
  }

  LabelFile take() {
    for (LabeledImage& image : table_.images)
      if (!image.fault.empty()) image.objects.clear();
    return std::move(table_);
  }

 private:
  template <typename Cell>
  static void add_object(const Cell& cell, const std::string& where, LabeledImage& image) {
    // A row that has only an image name is an image without objects.
    const bool is_empty = std::ranges::all_of(std::array{name_column, x0, y0, x1, y1},
                                              [&](Column column) { return cell(column).empty(); });
    if (is_empty) return;
    if (cell(name_column).empty()) user_error("{}: expected the name of a class", where);
    const auto number = [&](Column column) { return number_of(cell(column), kNames.at(column)[0], where); };
    image.objects.push_back({.name = cell(name_column),
                             .box = {.x0 = number(x0), .y0 = number(y0), .x1 = number(x1), .y1 = number(y1)},
                             .where = where});
  }

  std::array<size_t, num_columns> columns_;
  std::map<std::string, size_t> image_of_;
  LabelFile table_;
};

}  // namespace

LabelFile parse_box_table(std::string_view text, std::string_view name, bool skip_bad) {
  std::string_view rest = without_bom(text);
  BoxTable table(take_line(rest), name);
  for (int64_t line = 2; !rest.empty(); ++line) {
    const std::string_view row = trimmed(take_line(rest));
    if (!row.empty()) table.add(row, fmt::format("{}:{}", name, line), skip_bad);
  }
  return table.take();
}

}  // namespace hearth::data
