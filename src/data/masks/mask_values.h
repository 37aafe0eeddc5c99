#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "data/masks/masks.h"

/// Maps the values stored in mask files to classes.
namespace hearth::data {

/// Number of gray values or palette indices that a mask pixel can have.
inline constexpr int64_t kNumMaskNumbers = 256;
/// Flag of color codes: the code of a color is kColorCode + 0xRRGGBB.
inline constexpr uint32_t kColorCode = 1U << 24;

/// Returns the code of a pixel of a decoded mask: gray value, palette index, or kColorCode + 0xRRGGBB. Alpha
/// is ignored.
inline uint32_t mask_code(const Image& mask, size_t pixel) {
  const uint8_t* at = &mask.pixels[pixel * static_cast<size_t>(mask.channels)];
  if (mask.channels < 3) return at[0];
  return kColorCode | uint32_t{at[0]} << 16 | uint32_t{at[1]} << 8 | at[2];
}

/// Pixel count of each code in a set of masks, and the index of the first mask with the code.
struct MaskHistogram {
  struct Entry {
    int64_t pixels = 0;
    int64_t first_mask = 0;
  };
  std::map<uint32_t, Entry> entries;
  int64_t num_pixels = 0;
  /// Number of pixels whose colors are not in `entries`, because `entries` has reached its max number of
  /// colors.
  int64_t uncounted_pixels = 0;

  void add(const Image& mask, int64_t index);
  /// Adds the counts of another set. `first`: added to the mask indices of `other`.
  void add(const MaskHistogram& other, int64_t first = 0);
};

/// The pixel value (number) of each class in mask files; empty if no rule of choose_class_numbers() matches.
struct ClassNumbers {
  std::vector<int64_t> numbers = {};
  /// Explanation, for messages, why the numbers are not 0, 1, 2, ...; empty if they are.
  std::string reason = {};
  bool operator==(const ClassNumbers&) const = default;
};
/// Determines which number belongs to which class, given the pixels of each number in all masks:
///   0 to C - 1                          class indices
///   0 and 255 alone                     255 is class 1
///   1 to C without 0                    class indices from 1
///   C other numbers                     in ascending order
///   many numbers around C frequent ones (lossy or smoothed masks): the frequent ones
/// The unlabeled number is not a class. `num_classes`: C; 0: determined from the numbers. `unlabeled`: as in
/// MaskOptions.
ClassNumbers choose_class_numbers(const std::map<int64_t, int64_t>& pixels, int64_t num_classes,
                                  int64_t unlabeled);

/// Returns the tolerance for mask values: values up to this distance from one of `numbers` belong to its
/// class. 0 unless the numbers are far apart.
int64_t number_tolerance(const std::vector<int64_t>& numbers);
/// Max Euclidean distance in RGB (0 to 255 per channel) at which a pixel gets the class of the nearest color
/// in the class table.
inline constexpr int64_t kNearColor = 32;
/// Max fraction of pixels whose color is farther than kNearColor from every class; these pixels are
/// unlabeled.
inline constexpr double kMaxFarShare = 0.1;

/// Mapping from pixel codes (mask_code) to classes. It is determined by a class table and by the values in a
/// set of masks.
class MaskMeaning {
 public:
  static constexpr int kNoClass = -1;

  /// Reads the class table of `options`; without one, creates num_classes classes. Throws a UserError if the
  /// table has more than num_classes classes.
  explicit MaskMeaning(const MaskOptions& options);

  /// Returns the class of a code, kUnlabeled or kNoClass.
  int label(uint32_t code) const;
  const std::vector<MaskClass>& classes() const { return classes_; }

  /// Determines from the histogram of all masks which code belongs to which class, and returns a note on each
  /// decision that is not obvious. `file` returns the file name of a mask index. The UserError lists the
  /// values found if no rule matches.
  std::vector<std::string> decide(const MaskHistogram& found,
                                  const std::function<std::string(int64_t)>& file);
  /// Value for MaskOptions::class_numbers that decide() determined.
  const std::vector<int64_t>& class_numbers() const { return class_numbers_; }
  /// Describes the class numbers for messages: "0 to 2", "0, 50, 100".
  std::string describe_numbers() const;
  /// Returns a warning that names the classes without a pixel in `masks`; empty if there are none.
  std::string missing_classes(const MaskHistogram& masks) const;

 private:
  using Name = std::function<std::string(int64_t)>;
  void set_lines(std::vector<MaskClass> lines);
  /// Sets lines_ to `count` classes without names; used without a class table.
  void number_classes(int64_t count);
  void set_numbers(std::vector<int64_t> numbers);
  int nearest(uint32_t code) const;  ///< class of the nearest color; kUnlabeled if all are far
  /// Returns the gray levels of the table's colors as class numbers, if all these colors are gray and all
  /// numbers in the masks are among them; otherwise none.
  ClassNumbers table_grays(const std::map<int64_t, int64_t>& pixels) const;
  std::string decide_numbers(const MaskHistogram& found, const Name& file);
  std::string decide_colors(const MaskHistogram& found, const Name& file);
  std::string off_numbers(const std::map<int64_t, int64_t>& pixels) const;
  [[noreturn]] void refuse_numbers(const MaskHistogram& found, const Name& file) const;

  MaskOptions options_;
  fs::path table_;
  std::vector<MaskClass> lines_;  ///< lines of the class table, including "void" (unlabeled)
  std::vector<uint8_t> label_of_line_;
  std::vector<MaskClass> classes_;
  bool has_own_colors_ = false;  ///< true if the class table contains colors
  std::vector<int64_t> class_numbers_;
  std::vector<int16_t> of_number_;
  std::unordered_map<uint32_t, uint8_t> of_color_;
};

}  // namespace hearth::data
