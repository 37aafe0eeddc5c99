#pragma once

#include <functional>
#include <string>
#include <vector>

#include "recipe/recipe.h"

namespace hearth::tasks {

/// Output of `hearth validate` on the data of a recipe.
struct DataReport {
  std::function<void(const std::string& text)> print;  ///< prints text unchanged
  bool has_colors = false;                             ///< true if the output shows ANSI colors

  /// Prints a line. Control characters in it are escaped.
  void line(const std::string& text) const;
  /// Prints a note, indented.
  void notes(const std::vector<std::string>& notes) const;
  /// Lists faults, similar ones once, and throws a UserError if there are any among `num_images` images.
  /// `split`: "train", "test" or "training".
  void refuse(const std::vector<std::string>& faults, int64_t num_images, const char* split) const;
};

/// Decodes all images of a labeled split and reports the number of images of each class.
void check_labeled_images(const recipe::Recipe& recipe, const char* split, const DataReport& report);

}  // namespace hearth::tasks
