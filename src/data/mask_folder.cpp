#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "data/masks.h"
#include "data/picture_cache.h"
#include "data/picture_files.h"

namespace hearth::data {
namespace {

struct Pair {
  fs::path image, mask;
};

/// Where a split's pictures and masks lie. `list`: a file with the names of the split's pictures.
struct Places {
  std::string layout;
  fs::path images, masks, list;
  bool is_divided = false;  ///< one folder holds both splits
};

constexpr std::array<std::string_view, 3> kMaskFolders = {"masks", "labels", "annotations"};

std::vector<std::string> split_names(std::string_view split) {
  if (split == "train") return {"train", "training"};
  return {"val", "valid", "validation", "test"};
}

void add_voc(const MaskOptions& options, std::vector<Places>& found) {
  const fs::path images = options.path / "JPEGImages", masks = options.path / "SegmentationClass";
  if (!fs::is_directory(images) || !fs::is_directory(masks)) return;
  const fs::path lists = options.path / "ImageSets" / "Segmentation";
  const fs::path list = lists / (options.split == "train" ? "train.txt" : "val.txt");
  found.push_back({"JPEGImages and SegmentationClass", images, masks, fs::exists(list) ? list : fs::path(),
                   !fs::exists(list)});
}

/// Folders whose names tell a split and what is in them, in any of the known orders.
void add_split(const MaskOptions& options, const std::string& split, std::vector<Places>& found) {
  const fs::path& root = options.path;
  const auto add = [&](const fs::path& images, const fs::path& masks) {
    if (!fs::is_directory(root / images) || !fs::is_directory(root / masks)) return;
    found.push_back({fmt::format("{} and {}", images.string(), masks.string()), root / images, root / masks});
  };
  for (const char* ending : {"annot", "_labels", "_masks"}) add(split, split + ending);
  for (const std::string_view masks : kMaskFolders) {
    add(fs::path(split) / "images", fs::path(split) / masks);
    add(fs::path("images") / split, fs::path(masks) / split);
  }
}

void add_undivided(const MaskOptions& options, std::vector<Places>& found) {
  const fs::path images = options.path / "images";
  const auto is_divided = [&](std::string_view split) {
    return std::ranges::any_of(split_names(split),
                               [&](const std::string& name) { return fs::is_directory(images / name); });
  };
  if (is_divided("train") || is_divided("test")) return;
  for (const std::string_view masks : kMaskFolders) {
    if (!fs::is_directory(images) || !fs::is_directory(options.path / masks)) continue;
    found.push_back({.layout = fmt::format("images and {}", masks),
                     .images = images,
                     .masks = options.path / masks,
                     .is_divided = true});
  }
}

std::vector<Places> known_places(const MaskOptions& options) {
  std::vector<Places> found;
  add_voc(options, found);
  for (const std::string& split : split_names(options.split)) {
    // Of several held-out sets the first is taken.
    if (found.empty()) add_split(options, split, found);
  }
  add_undivided(options, found);
  return found;
}

Places find_places(const MaskOptions& options) {
  const std::vector<Places> found = known_places(options);
  if (found.empty()) {
    user_error(
        "expected pictures and masks of the {} split in {}, like train/images and train/masks, images and "
        "masks, or JPEGImages and SegmentationClass, found none",
        options.split, options.path.string());
  }
  if (found.size() > 1)
    user_error("expected one layout of pictures and masks in {}, found {}, and {}; move one away",
               options.path.string(), found[0].layout, found[1].layout);
  return found[0];
}

/// The mask of a picture by its name.
std::optional<fs::path> mask_of(const std::map<std::string, fs::path>& masks, const std::string& stem) {
  for (const char* ending : {"", "_mask", "_label", "_L"}) {
    if (const auto found = masks.find(stem + ending); found != masks.end()) return found->second;
  }
  return std::nullopt;
}

std::vector<std::string> stems_of(const Places& places, const std::map<std::string, fs::path>& images) {
  std::vector<std::string> stems;
  if (places.list.empty()) {
    for (const auto& [stem, path] : images) stems.push_back(stem);
    return stems;
  }
  const std::string text = read_text(places.list, int64_t{64} << 20);
  std::string_view rest = text;
  for (int64_t number = 1; !rest.empty(); ++number) {
    const std::string stem(trimmed(take_line(rest)));
    if (stem.empty()) continue;
    if (!images.contains(stem))
      user_error("{}:{}: expected the name of a picture in {}, got '{}'", places.list.string(), number,
                 places.images.string(), printable(stem));
    stems.push_back(stem);
  }
  return stems;
}

std::vector<Pair> find_pairs(const MaskOptions& options, const Places& places) {
  const std::map<std::string, fs::path> images = picture_files(places.images);
  std::map<std::string, fs::path> masks = picture_files(places.masks);
  std::vector<Pair> pairs;
  for (const std::string& stem : stems_of(places, images)) {
    const auto mask = mask_of(masks, stem);
    if (!mask) {
      user_error("{}: expected its mask {}.png in {}, found none", images.at(stem).string(), stem,
                 places.masks.string());
    }
    pairs.push_back({images.at(stem), *mask});
  }
  if (places.is_divided) pairs = every_fifth_apart(std::move(pairs), options.split);
  if (pairs.empty())
    user_error("expected pictures of the {} split in {}, found none", options.split, places.images.string());
  return pairs;
}

bool is_void(std::string name) {
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name == "void" || name == "unlabeled" || name == "unlabelled" || name == "ignore";
}

/// What the numbers and the colors of masks stand for.
struct Meaning {
  std::array<int, 256> of_number;  ///< a class, kUnlabeled, or -1
  std::map<std::array<uint8_t, 3>, uint8_t> of_color;
  std::vector<MaskClass> classes;
};

fs::path find_table(const MaskOptions& options) {
  if (!options.classes.empty()) return options.classes;
  for (const char* name : {"classes.csv", "class_dict.csv", "classes.txt"}) {
    if (fs::exists(options.path / name)) return options.path / name;
  }
  return {};
}

Meaning meaning_of(const MaskOptions& options) {
  Meaning meaning;
  meaning.of_number.fill(-1);
  const fs::path table = find_table(options);
  std::vector<MaskClass> lines;
  if (!table.empty()) lines = read_class_table(table);
  for (int64_t i = std::ssize(lines); table.empty() && i < options.num_classes; ++i)
    lines.push_back({fmt::format("class {}", i), palette_color(i)});
  for (size_t i = 0; i < lines.size(); ++i) {
    const bool counts = !is_void(lines[i].name);
    const auto label = counts ? static_cast<uint8_t>(meaning.classes.size()) : kUnlabeled;
    meaning.of_number[i] = label;
    meaning.of_color[lines[i].color] = label;
    if (counts) meaning.classes.push_back(lines[i]);
  }
  if (options.num_classes > 0 && std::ssize(meaning.classes) > options.num_classes) {
    user_error("expected at most the {} classes of the model, got {} in {}; try model.num_classes={}",
               options.num_classes, meaning.classes.size(), table.string(), meaning.classes.size());
  }
  meaning.of_number[kUnlabeled] = kUnlabeled;
  meaning.of_number.at(static_cast<size_t>(options.unlabeled)) = kUnlabeled;
  return meaning;
}

class MaskFolder : public MaskedImages {
 public:
  explicit MaskFolder(const MaskOptions& options)
      : pairs_(find_pairs(options, find_places(options))),
        meaning_(meaning_of(options)),
        exif_(options.exif),
        images_(std::ssize(pairs_), options.keep),
        masks_(std::ssize(pairs_), options.keep) {
    classes_ = meaning_.classes;
  }

  int64_t size() const override { return std::ssize(pairs_); }
  std::string where(int64_t index) const override { return pair(index).image.string(); }

  void read(int64_t index, Image& image, Image& mask) const override {
    const Pair& files = pair(index);
    read_picture(index, image);
    read_mask(index, mask);
    if (mask.size() == image.size()) return;
    user_error("{}: expected a mask of {}x{} as {}, got one of {}x{}", files.mask.string(), image.width,
               image.height, files.image.string(), mask.width, mask.height);
  }

  void read_mask(int64_t index, Image& mask) const override {
    if (const auto kept = masks_.find(index)) {
      mask = *kept;
      return;
    }
    const fs::path& file = pair(index).mask;
    const Image numbers = read_numbers(pair(index));
    mask.height = numbers.height;
    mask.width = numbers.width;
    mask.channels = 1;
    mask.pixels.resize(static_cast<size_t>(numbers.size().num_pixels()));
    for (size_t i = 0; i < mask.pixels.size(); ++i) {
      const int label = numbers.channels == 1
                            ? meaning_.of_number[numbers.pixels[i]]
                            : class_of_color(&numbers.pixels[i * numbers.channels], numbers);
      if (label < 0) refuse(numbers, i, file);
      mask.pixels[i] = static_cast<uint8_t>(label);
    }
    masks_.keep(index, mask);
  }

 private:
  /// The numbers of a mask, turned upright with its image where both are stored in one size.
  Image read_numbers(const Pair& files) const {
    const MappedFile mask(files.mask), image(files.image);
    Image numbers = decode_numbers(mask.bytes(), files.mask.native(), exif_);
    if (exif_ == Exif::ignore) return numbers;
    const ImageHeader header = read_image_header(image.bytes(), files.image.native());
    const bool as_stored = numbers.size() != header.upright() && numbers.size() == header.stored();
    return as_stored ? orient(std::move(numbers), header.orientation) : numbers;
  }

  void read_picture(int64_t index, Image& image) const {
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

  const Pair& pair(int64_t index) const { return pairs_[static_cast<size_t>(index)]; }

  int class_of_color(const uint8_t* pixel, const Image& numbers) const {
    if (numbers.channels < 3) return meaning_.of_number[pixel[0]];
    const auto found = meaning_.of_color.find({pixel[0], pixel[1], pixel[2]});
    return found == meaning_.of_color.end() ? -1 : found->second;
  }

  [[noreturn]] void refuse(const Image& numbers, size_t at, const fs::path& file) const {
    const auto width = static_cast<size_t>(numbers.width);
    const std::string place = fmt::format("at x {}, y {}", at % width, at / width);
    const uint8_t* pixel = &numbers.pixels[at * static_cast<size_t>(numbers.channels)];
    if (numbers.channels < 3) {
      user_error("{}: expected classes from 0 to {} or {} (unlabeled), got {} {}", file.string(),
                 classes_.size() - 1, kUnlabeled, pixel[0], place);
    }
    user_error("{}: expected colors of the class table, got {},{},{} {}", file.string(), pixel[0], pixel[1],
               pixel[2], place);
  }

  std::vector<Pair> pairs_;
  Meaning meaning_;
  Exif exif_;
  mutable PictureCache images_, masks_;
};

}  // namespace

bool has_masks(const fs::path& folder) { return !known_places({.path = folder}).empty(); }

std::unique_ptr<MaskedImages> open_mask_folder(const MaskOptions& options) {
  if (!fs::is_directory(options.path))
    user_error("expected a folder at data.path, found none at '{}'; set data.path=FOLDER",
               options.path.string());
  return std::make_unique<MaskFolder>(options);
}

}  // namespace hearth::data
