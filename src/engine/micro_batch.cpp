#include "engine/micro_batch.h"

#include <algorithm>

#include "base/error.h"

namespace hearth::engine {

MicroBatch::MicroBatch(std::initializer_list<data::NamedArray> named, int64_t num_rows, int64_t row_length)
    : num_rows(num_rows), row_length(row_length) {
  HEARTH_CHECK(named.size() <= arrays.size());
  std::ranges::copy(named, arrays.begin());
}

void MicroBatch::add(const data::NamedArray& array) {
  const auto unused = std::ranges::find(arrays, nullptr, &data::NamedArray::name);
  HEARTH_CHECK(unused != arrays.end());
  *unused = array;
}

size_t MicroBatch::position(std::string_view name) const {
  for (size_t i = 0; i < arrays.size() && arrays[i].name != nullptr; ++i)
    if (arrays[i].name == name) return i;
  internal_error("the micro-batch has no array for the input '{}'", name);
}

}  // namespace hearth::engine
