#include "data/csv_cells.h"

#include "base/text.h"

namespace hearth::data {

std::vector<std::string> csv_cells(std::string_view line, char separator) {
  std::vector<std::string> cells(1);
  bool is_quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"') {
      if (is_quoted && line.substr(i).starts_with("\"\"")) {
        cells.back() += line[++i];
      } else {
        is_quoted = !is_quoted;
      }
    } else if (line[i] == separator && !is_quoted) {
      cells.emplace_back();
    } else {
      cells.back() += line[i];
    }
  }
  for (std::string& cell : cells) cell = std::string(trimmed(cell));
  return cells;
}

}  // namespace hearth::data
