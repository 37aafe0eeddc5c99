#include "data/masks/mask_folder.h"

#include "base/error.h"
#include "base/threads.h"
#include "data/image_cache.h"
#include "data/masks/mask_pairs.h"
#include "data/masks/mask_values.h"

namespace hearth::data {
namespace {

class MaskFolder : public MaskedImages {
 public:
  explicit MaskFolder(const MaskOptions& options)
      : pairs_(find_mask_pairs(options.path, options.split)),
        meaning_(options),
        exif_(options.exif),
        images_(std::ssize(pairs_), options.cache_budget),
        masks_(std::ssize(pairs_), options.cache_budget) {
    classes_ = meaning_.classes();
  }

  int64_t size() const override { return std::ssize(pairs_); }
  std::string where(int64_t index) const override { return pair(index).image.string(); }

  void read(int64_t index, Image& image, Image& mask) const override {
    const MaskPair& files = pair(index);
    read_image_of(index, image);
    read_mask(index, mask);
    if (mask.size() == image.size()) return;
    user_error("{}: the mask has {}x{} pixels, but {} has {}x{}; export the mask again", files.mask.string(),
               mask.width, mask.height, files.image.string(), image.width, image.height);
  }

  void read_mask(int64_t index, Image& mask) const override {
    if (const auto kept = masks_.find(index)) {
      mask = *kept;
      return;
    }
    const Image numbers = read_numbers(index);
    mask.height = numbers.height;
    mask.width = numbers.width;
    mask.channels = 1;
    mask.pixels.resize(static_cast<size_t>(numbers.size().num_pixels()));
    // Looks up the class only when the code changes, because adjacent pixels often have equal codes.
    uint32_t last = 0;
    int label = meaning_.label(last);
    for (size_t i = 0; i < mask.pixels.size(); ++i) {
      const uint32_t code = mask_code(numbers, i);
      if (code != last) label = meaning_.label(last = code);
      if (label == MaskMeaning::kNoClass) refuse(numbers, i, pair(index).mask);
      mask.pixels[i] = static_cast<uint8_t>(label);
    }
    masks_.keep(index, mask);
  }

  std::string where_mask(int64_t index) const { return pair(index).mask.string(); }
  /// Decodes a mask without mapping its values to classes. Applies the EXIF orientation of the image if the
  /// mask has the stored size of the image.
  Image read_numbers(int64_t index) const {
    const MaskPair& files = pair(index);
    const MappedFile mask(files.mask), image(files.image);
    Image numbers = decode_numbers(mask.bytes(), files.mask.native(), exif_);
    if (exif_ == Exif::ignore) return numbers;
    const ImageHeader header = read_image_header(image.bytes(), files.image.native());
    const bool as_stored = numbers.size() != header.upright() && numbers.size() == header.stored();
    return as_stored ? orient(std::move(numbers), header.orientation) : numbers;
  }

 private:
  void read_image_of(int64_t index, Image& image) const {
    if (const auto kept = images_.find(index)) {
      image = *kept;
      return;
    }
    thread_local ImageBuffers buffers;
    const fs::path& file = pair(index).image;
    const MappedFile mapped(file);
    image = read_image(mapped.bytes(), 3, file.native(), buffers, exif_);
    images_.keep(index, image);
  }

  const MaskPair& pair(int64_t index) const { return pairs_[static_cast<size_t>(index)]; }

  [[noreturn]] void refuse(const Image& mask, size_t at, const fs::path& file) const {
    const auto width = static_cast<size_t>(mask.width);
    const uint32_t code = mask_code(mask, at);
    const std::string place = fmt::format("at x {}, y {}", at % width, at / width);
    if (code < kColorCode) {
      user_error(
          "{}: {} {} is not a class; classes are {}; set data.unlabeled={} if it marks pixels without a "
          "class",
          file.string(), code, place, meaning_.describe_numbers(), code);
    }
    user_error("{}: the color {},{},{} {} is not in the class table; add it as a line NAME,RED,GREEN,BLUE",
               file.string(), code >> 16 & 0xFF, code >> 8 & 0xFF, code & 0xFF, place);
  }

  std::vector<MaskPair> pairs_;
  MaskMeaning meaning_;
  Exif exif_;
  mutable ImageCache images_, masks_;
};

/// Counts the values of all masks that can be read. Sets `fault`, unless it is set, to the error of the first
/// mask that cannot.
MaskHistogram count_values(const MaskFolder& masks, ThreadPool& threads, std::string& fault) {
  std::vector<MaskHistogram> found(static_cast<size_t>(threads.size()));
  std::vector<std::string> faults(static_cast<size_t>(masks.size()));
  threads.run_tasks(masks.size(), threads.size(), [&](int64_t index, int thread) {
    try {
      found[static_cast<size_t>(thread)].add(masks.read_numbers(index), index);
    } catch (const UserError& error) {
      faults[static_cast<size_t>(index)] = error.what();
    }
  });
  MaskHistogram all;
  for (const MaskHistogram& each : found) all.add(each);
  for (const std::string& each : faults)
    if (fault.empty()) fault = each;
  return all;
}

void check_path(const MaskOptions& options) {
  if (!fs::is_directory(options.path))
    user_error("expected a folder at data.path, found none at '{}'; set data.path=FOLDER",
               options.path.string());
}

}  // namespace

std::unique_ptr<MaskedImages> open_mask_folder(const MaskOptions& options) {
  check_path(options);
  return std::make_unique<MaskFolder>(options);
}

MaskDecision decide_mask_folder(const MaskOptions& train, const MaskOptions& held_out) {
  check_path(train);
  const MaskFolder training(train), held(held_out);
  ThreadPool threads(train.num_threads);
  std::string fault;
  const MaskHistogram of_training = count_values(training, threads, fault);
  MaskHistogram found = of_training;
  found.add(count_values(held, threads, fault), training.size());
  if (found.num_pixels == 0) user_error("{}", fault);
  MaskMeaning meaning(train);
  MaskDecision made;
  made.notes = meaning.decide(found, [&](int64_t index) {
    return index < training.size() ? training.where_mask(index) : held.where_mask(index - training.size());
  });
  if (std::string missing = meaning.missing_classes(of_training); !missing.empty())
    made.notes.push_back(std::move(missing));
  made.class_numbers = meaning.class_numbers();
  for (const MaskClass& one : meaning.classes()) made.class_names.push_back(one.name);
  return made;
}

}  // namespace hearth::data
