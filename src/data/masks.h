#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/extent.h"
#include "base/file.h"
#include "data/image.h"

namespace hearth::data {

class PictureBudget;

/// A pixel of a mask that belongs to no class: neither loss nor metrics count it.
inline constexpr uint8_t kUnlabeled = 255;
/// Classes that masks of one byte a pixel can tell apart.
inline constexpr int64_t kMostMaskClasses = 255;

/// What a class of pixels is called, and the color that it is drawn in.
struct MaskClass {
  std::string name;
  std::array<uint8_t, 3> color = {};
  bool operator==(const MaskClass&) const = default;
};
/// Color number `index` of the palette that the PASCAL VOC development kit draws masks in.
std::array<uint8_t, 3> palette_color(int64_t index);

/// Reads a table of classes: a line each, "name" or "name,r,g,b" (a header with these words is skipped); or,
/// after "Pixel Value, Class", "0, name" (Roboflow).
/// UserError with file and line. `name` stands for the file in messages.
std::vector<MaskClass> read_class_table(const fs::path& path);
std::vector<MaskClass> parse_class_table(std::string_view text, std::string_view name);

/// MaskOptions::unlabeled: 255 alone, unless it is a class; no number.
inline constexpr int64_t kUnlabeledAuto = -1, kUnlabeledNone = -2;

/// Which pictures with masks to open.
struct MaskOptions {
  /// One of mask_kinds(): "shapes" (generated), "masks" (a folder, see open_masks).
  std::string kind = "shapes";
  fs::path path;
  std::string split = "train";  ///< or "test"
  Extent image_size = 32;       ///< shapes: how large they are drawn
  int64_t count = 10000;        ///< shapes: how many, and which
  uint64_t seed = 0;
  /// masks: how many classes there are; another number in a mask is a fault. 0: as many as the table has.
  int64_t num_classes = 0;
  fs::path classes;  ///< masks: the table; empty: the one in the folder, if there is one
  /// masks: a number that means unlabeled too, kUnlabeledAuto or kUnlabeledNone.
  int64_t unlabeled = kUnlabeledAuto;
  /// masks: the number in the files of each line of the class table (without one: of each class). Empty: 0,
  /// 1, 2, ..., and no other color than the table's.
  std::vector<int64_t> class_numbers = {};
  Exif exif = Exif::apply;     ///< masks: of images
  bool allow_outside = false;  ///< masks: labels with outlines may name images outside of `path`
  bool skip_bad = false;  ///< masks: leave out pairs that cannot be read (MaskedImages::notes names them)
  int num_threads = 1;    ///< masks: that find these, and read all masks for decide_masks
  /// masks: for pictures and masks that are decoded once and kept; null: none is.
  std::shared_ptr<PictureBudget> keep = nullptr;
};

/// Pictures whose every pixel has a class, by index. Any number of threads may read.
class MaskedImages {
 public:
  virtual ~MaskedImages() = default;
  virtual int64_t size() const = 0;
  /// The picture (RGB) and its mask (one channel: the class or kUnlabeled) as they are stored, of one size.
  /// UserError "FILE: ..." for what cannot be read, a mask of another size, a class that there is not.
  virtual void read(int64_t index, Image& image, Image& mask) const = 0;
  /// The mask alone.
  virtual void read_mask(int64_t index, Image& mask) const = 0;
  virtual std::string where(int64_t index) const { return "image " + std::to_string(index); }
  const std::vector<MaskClass>& classes() const { return classes_; }
  /// Sentences on what is not read.
  const std::vector<std::string>& notes() const { return notes_; }

 protected:
  std::vector<MaskClass> classes_;
  std::vector<std::string> notes_;
};

std::vector<std::string> mask_kinds();
/// Opens masked images. These layouts of a folder are known by the names of its folders:
///   JPEGImages, SegmentationClass, ImageSets/Segmentation/{train,val}.txt        PASCAL VOC
///   images, annotations/trimaps, annotations/{trainval,test}.txt                 Oxford-IIIT Pets
///   leftImg8bit/train, gtFine/train, leftImg8bit/val, gtFine/val                 Cityscapes
///   train, trainannot, val, valannot                                             CamVid of SegNet
///   train/images, train/masks, val/images, val/masks
///   images/train, masks/train, images/val, masks/val
///   images, masks                                                every fifth image is held out
///   train, val: images and their masks, or one folder of both    every fifth image is held out
/// A file, or a folder in none of these layouts, may have labels with outlines instead (outlined_masks.h).
/// "masks" may be called labels or annotations; "val" also valid, validation or test. The mask of an image is
/// an image file of the same name, or of that name and an ending such as _mask. A mask of the size in which
/// its image is stored is turned upright with it. Its pixels are gray values, palette indices, or colors of
/// the class table (classes.csv, class_dict.csv or classes.txt in the folder), whose class "void" is no
/// class. UserError says what was expected where.
std::unique_ptr<MaskedImages> open_masks(const MaskOptions& options);
/// True if a folder has one of these layouts, other than one folder of images and masks.
bool has_masks(const fs::path& folder);

/// What the values of all masks decide.
struct MaskDecision {
  std::vector<int64_t> class_numbers;  ///< for MaskOptions of both splits
  std::vector<std::string> class_names;
  /// Sentences: which values stand for which classes if not 0, 1, 2, ...; classes without a pixel in the
  /// training masks.
  std::vector<std::string> notes;
};
/// Reads every mask of both splits of a folder once, and decides which values stand for which classes
/// (data/mask_values.h). UserError lists the values found where they fit no rule. Masks that cannot be read
/// are left to their readers, unless none can.
MaskDecision decide_masks(const MaskOptions& train, const MaskOptions& held_out);

/// What reading every mask and picture once found.
struct MaskCheck {
  std::vector<MaskClass> classes;
  int64_t num_images = 0;
  std::vector<int64_t> pixels;  ///< of each class
  int64_t unlabeled = 0;        ///< pixels
  std::vector<std::string> faults;
};
MaskCheck check_masks(const MaskedImages& images);
/// Median frequency balancing (Eigen and Fergus 2015, arXiv 1411.4734): a class's weight is the median of all
/// classes' frequencies over its own, which is its share of the pixels of the images that have it; 0 for a
/// class that no image has. UserError for a bad mask.
std::vector<float> median_frequency_weights(const MaskedImages& images);
/// The classes that each mask has pixels of.
std::vector<std::vector<int32_t>> classes_of_masks(const MaskedImages& images);

/// Draws classes in their colors, as RGB; unlabeled pixels white.
Image colorize(const Image& mask, const std::vector<MaskClass>& classes);
/// The picture with a mask's colors over it, half and half; class 0 and unlabeled pixels stay as they are.
Image overlay(const Image& image, const Image& mask, const std::vector<MaskClass>& classes);

}  // namespace hearth::data
