#pragma once

#include <functional>
#include <string>
#include <vector>

#include "recipe/recipe.h"

namespace hearth::tasks {

/// Printer for `hearth validate`, which checks the data of a recipe.
struct DataReport {
  std::function<void(const std::string& text)> print;  ///< prints text without escaping it
  bool has_colors = false;                             ///< true if the output shows ANSI colors

  /// Prints a line. Control characters in it are escaped.
  void line(const std::string& text) const;
  /// Prints each note as an indented line.
  void notes(const std::vector<std::string>& notes) const;
  /// Prints the faults of a split of `num_images` images, similar ones once, and throws a UserError; does
  /// nothing if there are no faults. `split`: name of the split in the message.
  void refuse(const std::vector<std::string>& faults, int64_t num_images, const char* split) const;
};

/// Decodes all images of a labeled split and reports the number of images of each class.
void check_labeled_images(const recipe::Recipe& recipe, const char* split, const DataReport& report);

}  // namespace hearth::tasks
