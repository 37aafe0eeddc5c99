#include "base/shape.h"

#include "base/error.h"

namespace hearth {

Shape::Shape(std::span<const int64_t> axes) : rank_(static_cast<int>(axes.size())) {
  if (axes.size() > kMaxRank)
    user_error("expected a shape of at most {} axes, got {}", kMaxRank, axes.size());
  int64_t total = 1;
  for (size_t i = 0; i < axes.size(); ++i) {
    axes_[i] = axes[i];
    if (axes[i] < 0 || __builtin_mul_overflow(total, axes[i] == 0 ? 1 : axes[i], &total) ||
        total > (1LL << 46)) {
      rank_ = static_cast<int>(i + 1);
      user_error("a tensor with the axis lengths {}... does not fit in memory", to_string(*this));
    }
  }
}

int64_t Shape::num_elements() const {
  int64_t total = 1;
  for (const int64_t length : axes()) total *= length;
  return total;
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (const int64_t length : shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(length);
  }
  return text + "]";
}

}  // namespace hearth
