#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "data/masks/mask_values.h"

namespace hearth::data {
namespace {

/// Max number of values listed in a message.
constexpr size_t kMaxListed = 24;
/// Max fraction of all pixels of one color that is far from every class: up to this it counts as damage by
/// lossy compression, above it as a class missing in the table.
constexpr double kMaxFarColor = 0.01;

bool is_void(std::string_view label) {
  const std::string name = lowered(label);
  return name == "void" || name == "unlabeled" || name == "unlabelled" || name == "ignore";
}

fs::path find_table(const MaskOptions& options) {
  if (!options.classes.empty()) return options.classes;
  for (const char* name : {"classes.csv", "class_dict.csv", "classes.txt", "_classes.csv"}) {
    for (const char* folder : {"", "train"}) {
      if (fs::exists(options.path / folder / name)) return options.path / folder / name;
    }
  }
  return {};
}

uint32_t code_of(const std::array<uint8_t, 3>& color) {
  return kColorCode | uint32_t{color[0]} << 16 | uint32_t{color[1]} << 8 | color[2];
}

std::array<int64_t, 3> rgb_of(uint32_t code) {
  return {static_cast<int64_t>(code >> 16 & 0xFF), static_cast<int64_t>(code >> 8 & 0xFF),
          static_cast<int64_t>(code & 0xFF)};
}

/// Returns the gray level of a color code; nullopt for other colors.
std::optional<int64_t> gray_of(uint32_t code) {
  const auto [red, green, blue] = rgb_of(code);
  return red == green && green == blue ? std::optional(red) : std::nullopt;
}

/// Formats values as "0, 1, 2 and 9 more".
std::string listed(const std::vector<std::string>& values) {
  if (values.size() <= kMaxListed) return fmt::format("{}", fmt::join(values, ", "));
  return fmt::format("{} and {} more", fmt::join(values.begin(), values.begin() + kMaxListed, ", "),
                     values.size() - kMaxListed);
}

std::string share_of(int64_t part, int64_t whole) {
  const double percent = 100 * static_cast<double>(part) / static_cast<double>(whole);
  return percent < 0.01 ? "less than 0.01%" : fmt::format("{:.2f}%", percent);
}

std::vector<int64_t> ascending(size_t count) {
  std::vector<int64_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

/// Returns the number of pixels per mask number; a gray color of an RGB mask counts as its gray level.
std::map<int64_t, int64_t> number_pixels(const MaskHistogram& found) {
  std::map<int64_t, int64_t> made;
  for (const auto& [code, entry] : found.entries) {
    if (const auto number = code < kColorCode ? std::optional<int64_t>(code) : gray_of(code))
      made[*number] += entry.pixels;
  }
  return made;
}

}  // namespace

MaskMeaning::MaskMeaning(const MaskOptions& options) : options_(options), table_(find_table(options)) {
  if (table_.empty()) {
    number_classes(options.num_classes > 0 ? options.num_classes : std::ssize(options.class_numbers));
  } else {
    set_lines(read_class_table(table_));
  }
  for (size_t i = 0; i < lines_.size(); ++i)
    has_own_colors_ = has_own_colors_ || lines_[i].color != palette_color(static_cast<int64_t>(i));
  if (!has_own_colors_) of_color_.try_emplace(code_of(palette_color(kUnlabeled)), kUnlabeled);
  if (options.num_classes > 0 && std::ssize(classes_) > options.num_classes) {
    user_error("{} has {} classes, but model.num_classes is {}; set model.num_classes={}", table_.string(),
               classes_.size(), options.num_classes, classes_.size());
  }
  set_numbers(options.class_numbers);
}

void MaskMeaning::set_lines(std::vector<MaskClass> lines) {
  lines_ = std::move(lines);
  classes_.clear();
  label_of_line_.clear();
  for (const MaskClass& line : lines_) {
    const bool counts = !is_void(line.name);
    label_of_line_.push_back(counts ? static_cast<uint8_t>(classes_.size()) : kUnlabeled);
    of_color_[code_of(line.color)] = label_of_line_.back();
    if (counts) classes_.push_back(line);
  }
}

void MaskMeaning::number_classes(int64_t count) {
  if (count > kMaxMaskClasses)
    user_error("the masks have {} classes; at most {} are possible", count, kMaxMaskClasses);
  std::vector<MaskClass> lines;
  for (int64_t i = 0; i < count; ++i) lines.push_back({fmt::format("class {}", i), palette_color(i)});
  set_lines(std::move(lines));
}

void MaskMeaning::set_numbers(std::vector<int64_t> numbers) {
  class_numbers_ = std::move(numbers);
  if (class_numbers_.size() > lines_.size())
    user_error("data.class_numbers has {} numbers for {} classes", class_numbers_.size(), lines_.size());
  of_number_.assign(static_cast<size_t>(kNumMaskNumbers), kNoClass);
  const auto at = [&](int64_t number) -> int16_t& { return of_number_[static_cast<size_t>(number)]; };
  for (size_t i = 0; i < lines_.size() && class_numbers_.empty(); ++i) of_number_[i] = label_of_line_[i];
  for (size_t i = 0; i < class_numbers_.size(); ++i) {
    const int64_t number = class_numbers_[i];
    if (number < 0 || number >= kNumMaskNumbers)
      user_error("{} in data.class_numbers is not a number from 0 to {}", number, kNumMaskNumbers - 1);
    at(number) = label_of_line_[i];
  }
  if (options_.unlabeled >= 0) at(options_.unlabeled) = kUnlabeled;
  if (options_.unlabeled != kUnlabeledNone && at(kUnlabeled) == kNoClass) at(kUnlabeled) = kUnlabeled;
  const int64_t tolerance = number_tolerance(class_numbers_);
  for (int64_t i = 0; i < kNumMaskNumbers && tolerance > 0; ++i) {
    if (at(i) != kNoClass) continue;
    const auto near = std::ranges::find_if(class_numbers_,
                                           [&](int64_t number) { return std::abs(number - i) <= tolerance; });
    at(i) = near == class_numbers_.end() ? int16_t{kUnlabeled} : at(*near);
  }
}

int MaskMeaning::label(uint32_t code) const {
  if (code < kColorCode) return of_number_[code];
  const auto found = of_color_.find(code);
  if (has_own_colors_ && found != of_color_.end()) return found->second;
  const auto gray = gray_of(code);
  const int number = gray ? of_number_[static_cast<size_t>(*gray)] : kNoClass;
  if (number != kNoClass) return number;
  if (found != of_color_.end()) return found->second;
  // The color is in no class. decide() has accepted such colors as damage, so the nearest class is used;
  // without decide() they are errors.
  return class_numbers_.empty() ? kNoClass : nearest(code);
}

int MaskMeaning::nearest(uint32_t code) const {
  int label = kUnlabeled;
  int64_t min_distance = kNearColor * kNearColor + 1;
  const std::array<int64_t, 3> color = rgb_of(code);
  for (size_t i = 0; i < lines_.size(); ++i) {
    int64_t distance = 0;
    for (size_t c = 0; c < color.size(); ++c) {
      const int64_t difference = color[c] - lines_[i].color[c];
      distance += difference * difference;
    }
    if (distance >= min_distance) continue;
    min_distance = distance;
    label = label_of_line_[i];
  }
  return label;
}

std::vector<std::string> MaskMeaning::decide(const MaskHistogram& found, const Name& file) {
  bool has_numbers = false, has_colors = false, is_in_table = has_own_colors_;
  for (const auto& [code, entry] : found.entries) {
    const bool is_number = code < kColorCode;
    has_numbers = has_numbers || is_number;
    has_colors = has_colors || (!is_number && !gray_of(code));
    is_in_table = is_in_table && !is_number && of_color_.contains(code);
  }
  std::vector<std::string> notes;
  // RGB masks with gray colors only contain class numbers, unless the class table lists these grays as
  // colors.
  const bool are_numbers = !has_colors && !is_in_table;
  if (are_numbers || has_numbers) notes.push_back(decide_numbers(found, file));
  if (!are_numbers) notes.push_back(decide_colors(found, file));
  if (class_numbers_.empty()) set_numbers(ascending(lines_.size()));
  std::erase(notes, "");
  return notes;
}

ClassNumbers MaskMeaning::table_grays(const std::map<int64_t, int64_t>& pixels) const {
  ClassNumbers made{.numbers = {}, .reason = fmt::format("their grays in {}", table_.string())};
  for (const MaskClass& line : lines_) {
    const auto gray = gray_of(code_of(line.color));
    if (!gray || !has_own_colors_) return {};
    made.numbers.push_back(*gray);
  }
  const bool fits = std::ranges::all_of(pixels, [&](const auto& entry) {
    return std::ranges::find(made.numbers, entry.first) != made.numbers.end() ||
           entry.first == options_.unlabeled;
  });
  return fits ? made : ClassNumbers();
}

std::string MaskMeaning::decide_numbers(const MaskHistogram& found, const Name& file) {
  const std::map<int64_t, int64_t> pixels = number_pixels(found);
  const int64_t num_lines = table_.empty() ? options_.num_classes : std::ssize(lines_);
  ClassNumbers chosen = table_grays(pixels);
  if (chosen.numbers.empty()) chosen = choose_class_numbers(pixels, num_lines, options_.unlabeled);
  if (chosen.numbers.empty()) refuse_numbers(found, file);
  if (num_lines == 0) number_classes(std::ssize(chosen.numbers));
  set_numbers(std::move(chosen.numbers));
  if (chosen.reason.empty()) return "";
  std::vector<std::string> pairs;
  for (size_t i = 0; i < class_numbers_.size(); ++i)
    pairs.push_back(fmt::format("{} is {}", class_numbers_[i], lines_[i].name));
  return fmt::format("in the masks {} ({}){}", listed(pairs), chosen.reason, off_numbers(pixels));
}

std::string MaskMeaning::off_numbers(const std::map<int64_t, int64_t>& pixels) const {
  int64_t all = 0, off = 0, unlabeled = 0;
  for (const auto& [number, count] : pixels) {
    all += count;
    if (std::ranges::find(class_numbers_, number) != class_numbers_.end()) continue;
    off += count;
    if (of_number_[static_cast<size_t>(number)] == kUnlabeled) unlabeled += count;
  }
  if (off == 0) return "";
  if (off == unlabeled)
    return fmt::format("; other values, {} of the pixels, are unlabeled", share_of(off, all));
  return fmt::format(
      "; {} of the pixels have other values: those up to {} from a class's value count as that class, the "
      "others ({} of all pixels) are unlabeled",
      share_of(off, all), number_tolerance(class_numbers_), share_of(unlabeled, all));
}

void MaskMeaning::refuse_numbers(const MaskHistogram& found, const Name& file) const {
  std::vector<std::string> values;
  std::vector<int64_t> labeled;
  for (const auto& [number, count] : number_pixels(found)) {
    values.push_back(std::to_string(number));
    const bool is_unlabeled =
        number == options_.unlabeled || (options_.unlabeled != kUnlabeledNone && number == kUnlabeled);
    if (!is_unlabeled) labeled.push_back(number);
  }
  const auto count = std::ssize(labeled);
  const int64_t num_lines = std::ssize(lines_);
  const auto first = std::ranges::find_if(labeled, [&](int64_t number) { return number >= num_lines; });
  const int64_t odd = first == labeled.end() ? labeled.back() : *first;
  const auto entry = found.entries.lower_bound(static_cast<uint32_t>(odd));
  const std::string where = entry != found.entries.end() && entry->first == static_cast<uint32_t>(odd)
                                ? file(entry->second.first_mask)
                                : file(0);
  std::string remedy = fmt::format(
      "set data.class_numbers to the number of each class, like data.class_numbers=[{}], or "
      "model.num_classes={}",
      fmt::join(labeled.begin(), labeled.begin() + std::min(count, std::max<int64_t>(num_lines, 2)), ","),
      std::max(labeled.back() + 1, count));
  if (count == num_lines + 1 && labeled.front() == 0 && labeled.back() == num_lines)
    remedy = fmt::format(
        "set data.unlabeled={0} if {0} marks pixels without a class (CamVid's void is 11), data.unlabeled=0 "
        "if "
        "0 does (ADE20K), or model.num_classes={1} if all are classes",
        num_lines, count);
  user_error("the masks have the values {}, but {} {} classes ({} first occurs in {}); {}", listed(values),
             table_.empty() ? "there are" : table_.string() + " has", num_lines, odd, where, remedy);
}

std::string MaskMeaning::decide_colors(const MaskHistogram& found, const Name& file) {
  int64_t off = found.uncounted_pixels, far = 0;
  std::vector<std::pair<int64_t, uint32_t>> far_colors;
  for (const auto& [code, entry] : found.entries) {
    if (label(code) != kNoClass) continue;
    off += entry.pixels;
    if (code < kColorCode || nearest(code) != kUnlabeled) continue;
    far += entry.pixels;
    far_colors.emplace_back(entry.pixels, code);
  }
  if (off == 0) return "";
  std::ranges::sort(far_colors, std::greater());
  const auto all = static_cast<double>(found.num_pixels);
  const bool is_damage =
      far_colors.empty() || (static_cast<double>(far) <= kMaxFarShare * all &&
                             static_cast<double>(far_colors[0].first) <= kMaxFarColor * all);
  if (!is_damage) {
    std::vector<std::string> colors;
    for (const auto& [count, code] : far_colors)
      colors.push_back(fmt::format("{},{},{}", code >> 16 & 0xFF, code >> 8 & 0xFF, code & 0xFF));
    user_error(
        "{}: {} of the pixels of all masks have a color that is not in {}: {}; list each color as a line "
        "NAME,RED,GREEN,BLUE in classes.csv",
        file(found.entries.at(far_colors[0].second).first_mask), share_of(far, found.num_pixels),
        table_.empty() ? "a class table" : table_.string(), listed(colors));
  }
  return fmt::format(
      "warning: {} of the masks' pixels have a color that is in no class (lossy compression?): those "
      "within a distance of {} in RGB count as the nearest class, the others ({} of all pixels) are "
      "unlabeled",
      share_of(off, found.num_pixels), kNearColor, share_of(far, found.num_pixels));
}

std::string MaskMeaning::describe_numbers() const {
  std::vector<std::string> numbers;
  for (const int64_t number : class_numbers_) numbers.push_back(std::to_string(number));
  if (numbers.empty() || class_numbers_ == ascending(numbers.size()))
    return fmt::format("0 to {}", std::ssize(lines_) - 1);
  return listed(numbers);
}

std::string MaskMeaning::missing_classes(const MaskHistogram& masks) const {
  std::vector<int64_t> pixels(classes_.size());
  for (const auto& [code, entry] : masks.entries) {
    const int found = label(code);
    if (found >= 0 && found < std::ssize(pixels)) pixels[static_cast<size_t>(found)] += entry.pixels;
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < pixels.size(); ++i)
    if (pixels[i] == 0) names.push_back(printable(classes_[i].name));
  if (names.empty()) return "";
  return fmt::format("warning: no training mask has a pixel of {} of {} classes: {}", names.size(),
                     pixels.size(), listed(names));
}

}  // namespace hearth::data
