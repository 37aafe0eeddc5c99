#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hearth::data {

/// Splits a line of a table into cells, without leading and trailing whitespace. Cells may be quoted; "" in
/// quotes is one quote. A cell cannot contain a newline.
std::vector<std::string> csv_cells(std::string_view line, char separator);

}  // namespace hearth::data
