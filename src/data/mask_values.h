#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "data/masks.h"

/// From the values that mask files store to classes.
namespace hearth::data {

/// Numbers that a pixel of a mask can have.
inline constexpr int64_t kNumMaskNumbers = 256;
/// Added to 0xRRGGBB in the code of a colored pixel.
inline constexpr uint32_t kColorCode = 1U << 24;

/// Code of a pixel of a decoded mask file: its gray value or palette index, or kColorCode + 0xRRGGBB. Alpha
/// is dropped.
inline uint32_t mask_code(const Image& mask, size_t pixel) {
  const uint8_t* at = &mask.pixels[pixel * static_cast<size_t>(mask.channels)];
  if (mask.channels < 3) return at[0];
  return kColorCode | uint32_t{at[0]} << 16 | uint32_t{at[1]} << 8 | at[2];
}

/// Pixels of each code in a set of masks, and the first mask that has it.
struct MaskHistogram {
  struct Entry {
    int64_t pixels = 0;
    int64_t first_mask = 0;
  };
  std::map<uint32_t, Entry> entries;
  int64_t num_pixels = 0;
  /// Pixels of colors beyond the limit of distinct colors that are kept.
  int64_t uncounted_pixels = 0;

  void add(const Image& mask, int64_t index);
  /// Adds another set's counts; its masks are numbered from `first` on.
  void add(const MaskHistogram& other, int64_t first = 0);
};

/// The number of each class in mask files; empty where no rule fits.
struct ClassNumbers {
  std::vector<int64_t> numbers = {};
  /// Why numbers other than 0, 1, 2, ... are classes; empty where those are.
  std::string reason = {};
  bool operator==(const ClassNumbers&) const = default;
};
/// Decides which number stands for which class, given the pixels of each number in all masks:
///   0 to C - 1                          class indices
///   0 and 255 alone                     255 is class 1
///   1 to C without 0                    class indices from 1
///   C other numbers                     in ascending order
///   many numbers around C frequent ones (lossy or smoothed masks): the frequent ones
/// Unlabeled numbers are no class. `num_classes` C; 0: as many as the numbers have. `unlabeled` as in
/// MaskOptions.
ClassNumbers choose_class_numbers(const std::map<int64_t, int64_t>& pixels, int64_t num_classes,
                                  int64_t unlabeled);

/// Distance up to which a number is taken as the nearest of `numbers`: 0 unless these are far apart.
int64_t number_tolerance(const std::vector<int64_t>& numbers);
/// Euclidean distance in RGB up to which a color is taken as the nearest of the class table.
inline constexpr int64_t kNearColor = 32;
/// Share of all pixels that may be farther from every class; these are unlabeled.
inline constexpr double kMaxFarShare = 0.1;

/// What a class table and the decisions about a set make of codes.
class MaskMeaning {
 public:
  static constexpr int kNoClass = -1;

  /// Reads the table of `options`, or numbers num_classes classes. UserError where they do not fit.
  explicit MaskMeaning(const MaskOptions& options);

  /// A class, kUnlabeled or kNoClass.
  int label(uint32_t code) const;
  const std::vector<MaskClass>& classes() const { return classes_; }

  /// Decides from all masks of a set what their codes mean, and returns a remark for each decision that is
  /// not obvious. `file` names the mask of an index. UserError lists what was found.
  std::vector<std::string> decide(const MaskHistogram& found,
                                  const std::function<std::string(int64_t)>& file);
  /// MaskOptions::class_numbers as decided.
  const std::vector<int64_t>& class_numbers() const { return class_numbers_; }
  /// The numbers of classes for messages: "0 to 2", "0, 50, 100".
  std::string describe_numbers() const;
  /// A warning that names the classes of which `masks` has no pixel; empty: all have some.
  std::string missing_classes(const MaskHistogram& masks) const;

 private:
  using Name = std::function<std::string(int64_t)>;
  void set_lines(std::vector<MaskClass> lines);
  void number_classes(int64_t count);  ///< lines for classes without a table
  void set_numbers(std::vector<int64_t> numbers);
  int nearest(uint32_t code) const;  ///< the class of the nearest color; kUnlabeled where all are far
  /// Numbers of a table of gray colors that has all of the masks' numbers.
  ClassNumbers table_grays(const std::map<int64_t, int64_t>& pixels) const;
  std::string decide_numbers(const MaskHistogram& found, const Name& file);
  std::string decide_colors(const MaskHistogram& found, const Name& file);
  std::string off_numbers(const std::map<int64_t, int64_t>& pixels) const;
  [[noreturn]] void refuse_numbers(const MaskHistogram& found, const Name& file) const;

  MaskOptions options_;
  fs::path table_;
  std::vector<MaskClass> lines_;  ///< of the table, void lines among them
  std::vector<uint8_t> label_of_line_;
  std::vector<MaskClass> classes_;
  bool has_own_colors_ = false;  ///< the table gives colors
  std::vector<int64_t> class_numbers_;
  std::vector<int16_t> of_number_;
  std::unordered_map<uint32_t, uint8_t> of_color_;
};

}  // namespace hearth::data
