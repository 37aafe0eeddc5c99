#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hearth::data {

/// Splits a line of a table into cells, without blanks at their ends. Cells may be quoted; "" in quotes is
/// one quote. A cell does not continue on the next line.
std::vector<std::string> csv_cells(std::string_view line, char separator);

}  // namespace hearth::data
