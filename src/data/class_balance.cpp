#include "data/class_balance.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/philox.h"

namespace hearth::data {
namespace {

int64_t permuted_place(uint64_t key, int64_t count, int64_t index) {
  return static_cast<int64_t>(
      permuted_index(key, static_cast<uint64_t>(count), static_cast<uint64_t>(index)));
}

/// Returns the key that permutes the rows of class `number` in pass `repeat` over them.
uint64_t key_of(uint64_t key, size_t number, int64_t repeat) {
  const auto times = static_cast<uint64_t>(repeat);
  const auto words = philox4x32(key, {static_cast<uint32_t>(number), static_cast<uint32_t>(times),
                                      static_cast<uint32_t>(times >> 32), 0});
  return uint64_t{words[0]} << 32 | words[1];
}

}  // namespace

ClassBalance::ClassBalance(std::span<const int32_t> labels) : num_rows_(std::ssize(labels)) {
  HEARTH_CHECK(!labels.empty());
  std::map<int32_t, std::vector<int64_t>> rows;
  for (size_t i = 0; i < labels.size(); ++i) rows[labels[i]].push_back(static_cast<int64_t>(i));
  for (auto& [label, indices] : rows) classes_.push_back(std::move(indices));
}

ClassBalance::Draw ClassBalance::at(uint64_t key, int64_t place) const {
  // An epoch is divided into one range of consecutive positions per class; range s begins at floor(s x rows /
  // classes). A random permutation, different in each epoch, assigns classes to ranges, because some ranges
  // are longer by one.
  const int64_t num_classes = std::ssize(classes_);
  const int64_t stretch = ((place + 1) * num_classes - 1) / num_rows_;
  const auto number = static_cast<size_t>(permuted_place(key, num_classes, stretch));
  const std::vector<int64_t>& rows = classes_[number];
  const int64_t in_class = place - stretch * num_rows_ / num_classes;
  const int64_t repeat = in_class / std::ssize(rows);
  const int64_t row =
      permuted_place(key_of(key, number, repeat), std::ssize(rows), in_class % std::ssize(rows));
  return {.index = rows[static_cast<size_t>(row)], .repeat = repeat};
}

std::vector<int32_t> rarest_classes(std::span<const std::vector<int32_t>> rows) {
  std::map<int32_t, int64_t> count;
  for (const std::vector<int32_t>& classes : rows)
    for (const int32_t label : classes) ++count[label];
  std::vector<int32_t> rarest;
  for (const std::vector<int32_t>& classes : rows) {
    const auto rarest_class =
        std::ranges::min_element(classes, {}, [&](int32_t label) { return std::pair(count[label], label); });
    rarest.push_back(rarest_class == classes.end() ? -1 : *rarest_class);
  }
  return rarest;
}

}  // namespace hearth::data
