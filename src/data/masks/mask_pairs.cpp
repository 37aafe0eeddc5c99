#include "data/masks/mask_pairs.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "data/captions/image_files.h"
#include "data/images/image.h"
#include "data/masks/masks.h"
#include "data/split_names.h"

namespace hearth::data {
namespace {

constexpr auto kImageFolders = std::to_array<std::string_view>({"images", "image", "imgs"});
constexpr auto kMaskFolders =
    std::to_array<std::string_view>({"masks", "mask", "labels", "label", "annotations", "gt"});
/// Suffixes that distinguish images from masks, in order of preference: a mask's name is the image's name,
/// with an image suffix removed and a mask suffix appended.
constexpr auto kImageEndings =
    std::to_array<std::string_view>({"", "_leftImg8bit", "_sat", "_image", "_img"});
constexpr auto kMaskEndings = std::to_array<std::string_view>(
    {"", "_gtFine_labelTrainIds", "_gtFine_labelIds", "_gtCoarse_labelTrainIds", "_gtCoarse_labelIds",
     "_mask", "_masks", "_label", "_labels", "_L", "_segmentation", "_seg", "_gt"});

/// Files of a split: folders of its images and masks.
struct Layout {
  std::string name;
  fs::path images, masks;
  fs::path list = {};  ///< file that lists the names of the split's images; empty: all images of the folder
  bool is_divided = false;  ///< true if both splits are in these folders; every fifth image is held out
};

/// Image files below a folder, by their path in it without extension.
using Files = std::map<std::string, fs::path>;

Files files_of_images(const fs::path& folder) {
  Files files;
  for (fs::path& path : files_below(folder)) {
    if (!is_image_file(path)) continue;
    const std::string name = path.lexically_relative(folder.lexically_normal()).replace_extension().string();
    const auto [found, is_new] = files.try_emplace(name, path);
    if (!is_new) {
      user_error("{}: {} has the same name; keep one of them", found->second.string(),
                 path.filename().string());
    }
  }
  return files;
}

/// Finds masks by the names of their images.
class MaskFinder {
 public:
  explicit MaskFinder(Files files) : files_(std::move(files)) {
    for (const auto& [name, path] : files_) {
      const auto [found, is_new] = by_stem_.try_emplace(path.stem().string(), path);
      if (!is_new) found->second.clear();
    }
  }

  /// Returns the mask of an image. `is_mixed`: true if images and masks share a folder, so that a mask's name
  /// must have a suffix.
  std::optional<fs::path> find(const std::string& name, bool is_mixed) const {
    for (const std::string_view image_ending : kImageEndings) {
      if (!name.ends_with(image_ending)) continue;
      const std::string base = name.substr(0, name.size() - image_ending.size());
      for (const std::string_view ending : kMaskEndings) {
        if (is_mixed && ending.empty()) continue;
        const std::string wanted = base + std::string(ending);
        if (const auto found = files_.find(wanted); found != files_.end()) return found->second;
        const auto found = by_stem_.find(fs::path(wanted).filename().string());
        if (found != by_stem_.end() && !found->second.empty()) return found->second;
      }
    }
    return std::nullopt;
  }
  const Files& files() const { return files_; }

 private:
  Files files_;
  Files by_stem_;  ///< files by name without folder; an empty path if several files have the name
};

bool are_folders(const fs::path& one, const fs::path& other) {
  return fs::is_directory(one) && fs::is_directory(other);
}

/// Sets the file that lists the images of the split. If there is none, both splits are in one folder.
void set_list(Layout& layout, const fs::path& list) {
  layout.is_divided = !fs::exists(list);
  if (!layout.is_divided) layout.list = list;
}

void add_voc(const fs::path& root, std::string_view split, std::vector<Layout>& found) {
  Layout voc{"JPEGImages and SegmentationClass", root / "JPEGImages", root / "SegmentationClass"};
  if (!are_folders(voc.images, voc.masks)) return;
  set_list(voc, root / "ImageSets/Segmentation" / (split == "train" ? "train.txt" : "val.txt"));
  found.push_back(std::move(voc));
}

void add_pets(const fs::path& root, std::string_view split, std::vector<Layout>& found) {
  Layout pets{"images and annotations/trimaps", root / "images", root / "annotations/trimaps"};
  if (!are_folders(pets.images, pets.masks)) return;
  set_list(pets, root / "annotations" / (split == "train" ? "trainval.txt" : "test.txt"));
  found.push_back(std::move(pets));
}

/// Adds the layouts with a folder per split for images and for masks, such as train/images or images/train,
/// that exist.
void add_split(const fs::path& root, const std::string& split, std::vector<Layout>& found) {
  const auto add = [&](const fs::path& images, const fs::path& masks) {
    if (!are_folders(root / images, root / masks)) return;
    found.push_back({fmt::format("{} and {}", images.string(), masks.string()), root / images, root / masks});
  };
  for (const char* ending : {"annot", "_labels", "_masks"}) add(split, split + ending);
  for (const char* masks : {"gtFine", "gtCoarse"}) {
    if (found.empty()) add(fs::path("leftImg8bit") / split, fs::path(masks) / split);
  }
  for (const std::string_view images : kImageFolders) {
    for (const std::string_view masks : kMaskFolders) {
      add(fs::path(split) / images, fs::path(split) / masks);
      add(fs::path(images) / split, fs::path(masks) / split);
    }
  }
}

void add_undivided(const fs::path& root, std::vector<Layout>& found) {
  for (const std::string_view images : kImageFolders) {
    const auto has = [&](std::string_view split) {
      return find_split_name(split, [&](auto name) { return fs::is_directory(root / images / name); });
    };
    for (const std::string_view masks : kMaskFolders) {
      if (!are_folders(root / images, root / masks) || has("train") || has("test")) continue;
      found.push_back({.name = fmt::format("{} and {}", images, masks),
                       .images = root / images,
                       .masks = root / masks,
                       .is_divided = true});
    }
  }
}

/// Adds a layout with images and masks in one folder, distinguished by the masks' suffix, if such masks
/// exist.
void add_mixed(const fs::path& folder, bool is_divided, std::vector<Layout>& found) {
  if (!fs::is_directory(folder)) return;
  const MaskFinder masks(files_of_images(folder));
  const bool has_any = std::ranges::any_of(
      masks.files(), [&](const auto& file) { return masks.find(file.first, true).has_value(); });
  if (!has_any) return;
  found.push_back({.name = "images and masks in " + folder.string(),
                   .images = folder,
                   .masks = folder,
                   .is_divided = is_divided});
}

/// Returns the layouts that the names of existing folders identify.
std::vector<Layout> named_layouts(const fs::path& root, std::string_view split) {
  std::vector<Layout> found;
  add_voc(root, split, found);
  add_pets(root, split, found);
  for (const std::string_view folder : split_names(split)) {
    // If several held-out splits exist, such as val and test, uses the first.
    if (found.empty()) add_split(root, std::string(folder), found);
  }
  if (found.empty()) add_undivided(root, found);
  return found;
}

Layout find_layout(const fs::path& root, std::string_view split) {
  std::vector<Layout> found = named_layouts(root, split);
  for (const std::string_view folder : split_names(split)) {
    if (found.empty()) add_mixed(root / folder, false, found);
  }
  const auto train = find_split_name("train", [&](auto name) { return fs::is_directory(root / name); });
  if (found.empty() && !train) add_mixed(root, true, found);
  if (found.empty()) {
    user_error(
        "expected images and masks of the {} split in {}, like train/images and train/masks, images and "
        "masks, or JPEGImages and SegmentationClass, found none",
        split, root.string());
  }
  if (found.size() > 1)
    user_error("expected one layout of images and masks in {}, found {}, and {}; move one away",
               root.string(), found[0].name, found[1].name);
  return found[0];
}

/// Reads image names from a list, one per line; text after a blank is ignored.
std::vector<std::string> listed_names(const fs::path& list, const fs::path& folder, const Files& images) {
  std::vector<std::string> names;
  const std::string text = read_text(list, int64_t{64} << 20);
  std::string_view rest = text;
  for (int64_t number = 1; !rest.empty(); ++number) {
    std::string name(trimmed(take_line(rest)));
    if (name.empty() || name[0] == '#') continue;
    if (!images.contains(name)) name = name.substr(0, name.find_first_of(kBlank));
    if (!images.contains(name))
      user_error("{}:{}: expected the name of an image in {}, got '{}'", list.string(), number,
                 folder.string(), printable(name));
    names.push_back(std::move(name));
  }
  return names;
}

/// Returns the image names of a folder. In a mixed folder, leaves out the files that are masks of other
/// images.
std::vector<std::string> image_names(const Files& images, const MaskFinder& masks, bool is_mixed) {
  std::vector<fs::path> taken;
  for (const auto& [name, path] : images)
    if (const auto mask = is_mixed ? masks.find(name, true) : std::nullopt) taken.push_back(*mask);
  std::ranges::sort(taken);
  std::vector<std::string> names;
  for (const auto& [name, path] : images)
    if (!std::ranges::binary_search(taken, path)) names.push_back(name);
  return names;
}

}  // namespace

bool has_masks(const fs::path& folder) { return !named_layouts(folder, "train").empty(); }

std::vector<MaskPair> find_mask_pairs(const fs::path& root, std::string_view split) {
  const Layout layout = find_layout(root, split);
  const Files images = files_of_images(layout.images);
  const bool is_mixed = layout.images == layout.masks;
  const MaskFinder masks(is_mixed ? images : files_of_images(layout.masks));
  std::vector<MaskPair> pairs;
  for (const std::string& name : layout.list.empty() ? image_names(images, masks, is_mixed)
                                                     : listed_names(layout.list, layout.images, images)) {
    const auto mask = masks.find(name, is_mixed);
    if (!mask) {
      user_error("{}: expected its mask {}.png in {}, found none; add the mask or delete the image",
                 images.at(name).string(), is_mixed ? name + "_mask" : name, layout.masks.string());
    }
    pairs.push_back({images.at(name), *mask});
  }
  if (layout.is_divided) pairs = split_every_fifth(std::move(pairs), split);
  if (pairs.empty())
    user_error("expected images of the {} split in {}, found none", split, layout.images.string());
  return pairs;
}

}  // namespace hearth::data
