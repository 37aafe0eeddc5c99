#pragma once

#include <initializer_list>
#include <string_view>

#include "data/loader.h"
#include "engine/objective.h"

namespace hearth::engine {

/// Number of bytes after the end of each array of a micro-batch that must be readable, because kernels load
/// full vectors.
inline constexpr int64_t kInputSlack = 64;

/// One micro-batch in the caller's memory: an array for each input of the objective, by name.
struct MicroBatch {
  MicroBatch() = default;
  MicroBatch(std::initializer_list<data::NamedArray> named, int64_t num_rows, int64_t row_length = 0);
  explicit MicroBatch(const data::Batch& batch)
      : arrays(batch.arrays), num_rows(batch.count), row_length(batch.row_length) {}

  /// Adds the array for an input.
  void add(const data::NamedArray& array);
  /// Returns the index of the array for an input; throws an InternalError if there is none.
  size_t position(std::string_view name) const;
  template <typename T>
  const T* array(std::string_view name) const {
    return static_cast<const T*>(arrays[position(name)].data);
  }
  BatchShape shape() const { return {.num_rows = num_rows, .row_length = row_length}; }

  data::NamedArrays arrays = {};  ///< unused entries, which have no name, are last
  int64_t num_rows = 0;
  int64_t row_length = 0;  ///< one of EngineOptions::row_lengths; 0 if there are none
};

}  // namespace hearth::engine
