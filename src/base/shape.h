#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace hearth {

/// Axis lengths of a dense row-major tensor with at most kMaxRank axes. Rank 0 is a scalar with one element.
class Shape {
 public:
  static constexpr int kMaxRank = 6;

  Shape() = default;
  Shape(std::initializer_list<int64_t> axes) : Shape(std::span(axes.begin(), axes.size())) {}
  /// Throws a UserError if there are more than kMaxRank axes, one is negative, or the
  /// element count overflows.
  explicit Shape(std::span<const int64_t> axes);

  int rank() const { return rank_; }
  /// Length of an axis; negative axes count from the end.
  int64_t operator[](int axis) const { return axes_[static_cast<size_t>(axis < 0 ? axis + rank_ : axis)]; }
  int64_t back() const { return (*this)[-1]; }
  int64_t num_elements() const;
  std::span<const int64_t> axes() const { return {axes_.data(), static_cast<size_t>(rank_)}; }
  auto begin() const { return axes().begin(); }
  auto end() const { return axes().end(); }
  bool operator==(const Shape&) const = default;

 private:
  std::array<int64_t, kMaxRank> axes_{};
  int rank_ = 0;
};

/// Returns text such as "[64, 3, 32, 32]".
std::string to_string(const Shape& shape);

}  // namespace hearth
