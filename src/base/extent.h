#pragma once

#include <cstdint>

namespace hearth {

/// Height and width of an image, in pixels. Converts from a single number, the side of a square.
struct Extent {
  int64_t height = 0;
  int64_t width = 0;

  constexpr Extent() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): most images are square, so a number converts implicitly
  constexpr Extent(int64_t side) : height(side), width(side) {}
  constexpr Extent(int64_t of_height, int64_t of_width) : height(of_height), width(of_width) {}

  constexpr int64_t num_pixels() const { return height * width; }
  constexpr int64_t shorter() const { return height < width ? height : width; }
  constexpr int64_t longer() const { return height < width ? width : height; }
  bool operator==(const Extent&) const = default;
};

}  // namespace hearth
