#include <cstdlib>

#include "base/error.h"
#include "data/class_files.h"

/// A list of files where the first byte is even, else a table of files and labels; no row is without a file.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hearth;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  try {
    const bool is_table = data[0] % 2 != 0;
    const std::vector<data::LabelRow> rows =
        is_table ? data::parse_label_table(text, "fuzz", ',') : data::parse_label_list(text, "fuzz");
    if (is_table && !data::is_label_table(text, ',')) std::abort();
    for (const data::LabelRow& row : rows)
      if (row.file.empty() || (is_table && row.label.empty())) std::abort();
  } catch (const UserError&) {
  }
  return 0;
}
