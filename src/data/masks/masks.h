#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/extent.h"
#include "base/file.h"
#include "data/images/image.h"

namespace hearth::data {

class ImageCacheBudget;

/// Label of a pixel without a class; loss and metrics ignore it.
inline constexpr uint8_t kUnlabeled = 255;
/// Maximum number of classes in masks with one byte per pixel.
inline constexpr int64_t kMaxMaskClasses = 255;

/// Name and display color of a class of pixels.
struct MaskClass {
  std::string name;
  std::array<uint8_t, 3> color = {};
  bool operator==(const MaskClass&) const = default;
};
/// Returns color `index` of the palette in which the PASCAL VOC development kit draws masks.
std::array<uint8_t, 3> palette_color(int64_t index);

/// Reads a class table with a line "name" or "name,r,g,b" for each class (a header with these words is
/// skipped), or lines "0, name" after the header "Pixel Value, Class" (Roboflow). Throws a UserError with
/// file and line. `name`: file name in messages.
std::vector<MaskClass> read_class_table(const fs::path& path);
std::vector<MaskClass> parse_class_table(std::string_view text, std::string_view name);

/// Special values of MaskOptions::unlabeled. Auto: 255 is unlabeled unless it is a class number. None: no
/// pixel value means unlabeled.
inline constexpr int64_t kUnlabeledAuto = -1, kUnlabeledNone = -2;

/// Options of open_masks().
struct MaskOptions {
  /// Value of mask_kinds(): "shapes" (generated), "masks" (a folder, see open_masks).
  std::string kind = "shapes";
  fs::path path;
  std::string split = "train";  ///< split to read: "train" or "test"
  Extent image_size = 32;       ///< shapes: size of the images
  int64_t count = 10000;        ///< shapes: number of images; `seed`: seed of their random numbers
  uint64_t seed = 0;
  /// masks: number of classes; a mask value that maps to a larger class index is an error. 0: as many as the
  /// class table has.
  int64_t num_classes = 0;
  fs::path classes;  ///< masks: path of the class table; empty: the one in the folder, if any
  /// masks: a pixel value that means unlabeled, in addition to 255; or kUnlabeledAuto or kUnlabeledNone.
  int64_t unlabeled = kUnlabeledAuto;
  /// masks: the pixel value in mask files of each line of the class table (without a table: of each class).
  /// Empty: 0, 1, 2, ..., and colors must match the table exactly.
  std::vector<int64_t> class_numbers = {};
  Exif exif = Exif::apply;     ///< masks: whether the EXIF orientation of images is applied
  bool allow_outside = false;  ///< masks: true if labels with outlines may refer to images outside of `path`
  /// Masks: true if images or masks that cannot be read are skipped (MaskedImages::notes() lists them).
  bool skip_bad = false;
  int num_threads = 1;  ///< masks: number of threads for skip_bad and decide_masks()
  /// masks: budget for caching decoded images and masks; null: no cache.
  std::shared_ptr<ImageCacheBudget> cache_budget = nullptr;
};

/// Images with a class for every pixel, by index. Thread-safe.
class MaskedImages {
 public:
  virtual ~MaskedImages() = default;
  virtual int64_t size() const = 0;
  /// Reads an image (RGB) and its mask (one channel: class or kUnlabeled) as stored, of equal size. Throws a
  /// UserError "FILE: ..." if a file is unreadable, the sizes differ, or a class does not exist.
  virtual void read(int64_t index, Image& image, Image& mask) const = 0;
  /// Reads only the mask.
  virtual void read_mask(int64_t index, Image& mask) const = 0;
  virtual std::string where(int64_t index) const { return "image " + std::to_string(index); }
  const std::vector<MaskClass>& classes() const { return classes_; }
  /// Sentences about files that are not read.
  const std::vector<std::string>& notes() const { return notes_; }

 protected:
  std::vector<MaskClass> classes_;
  std::vector<std::string> notes_;
};

/// Returns the valid values of MaskOptions::kind.
std::vector<std::string> mask_kinds();
/// Opens masked images. A folder's layout is recognized by the names of its subfolders:
///   JPEGImages, SegmentationClass, ImageSets/Segmentation/{train,val}.txt        PASCAL VOC
///   images, annotations/trimaps, annotations/{trainval,test}.txt                 Oxford-IIIT Pets
///   leftImg8bit/train, gtFine/train, leftImg8bit/val, gtFine/val                 Cityscapes
///   train, trainannot, val, valannot                                             CamVid of SegNet
///   train/images, train/masks, val/images, val/masks
///   images/train, masks/train, images/val, masks/val
///   images, masks                                                every fifth image is held out
///   train, val: images and their masks, or one folder of both    every fifth image is held out
/// A file, or a folder in none of these layouts, may have labels with outlines instead (outlined_masks.h).
/// "masks" may also be "labels" or "annotations", and "val" may be "test" or another name of the held-out
/// split (data/split_names.h). The mask of an image is an image file of the same name, or of that name and an
/// ending such as _mask. If a mask has the stored size of its image, the EXIF orientation of the image is
/// applied to both. Its pixels are gray values, palette indices, or colors of the class table (classes.csv,
/// class_dict.csv or classes.txt in the folder), where the name "void" means unlabeled. Throws a
/// UserError with the expected names if files are missing.
std::unique_ptr<MaskedImages> open_masks(const MaskOptions& options);
/// True if a folder has a layout of open_masks(), except those with images and masks in one folder.
bool has_masks(const fs::path& folder);

/// Mapping from mask values to classes, determined from all masks by decide_masks().
struct MaskDecision {
  std::vector<int64_t> class_numbers;  ///< value for MaskOptions::class_numbers of both splits
  std::vector<std::string> class_names;
  /// Sentences about class numbers other than 0, 1, 2, ... and about classes without a pixel in the training
  /// masks.
  std::vector<std::string> notes;
};
/// Reads every mask of both splits of a folder once, and determines which pixel values belong to which
/// classes (data/masks/mask_values.h). The UserError lists the values found if no rule matches. Ignores
/// unreadable masks unless all are unreadable; opening the masks later reports their errors.
MaskDecision decide_masks(const MaskOptions& train, const MaskOptions& held_out);

/// Statistics from reading every image and mask once.
struct MaskCheck {
  std::vector<MaskClass> classes;
  int64_t num_images = 0;
  std::vector<int64_t> pixels;  ///< number of pixels of each class
  int64_t unlabeled = 0;        ///< number of unlabeled pixels
  std::vector<std::string> faults;
};
/// Reads every image and mask.
MaskCheck check_masks(const MaskedImages& images);
/// Returns class weights by median frequency balancing (Eigen and Fergus 2015, arXiv 1411.4734): median of
/// all class frequencies divided by the class's frequency, which is its fraction of the pixels of images that
/// contain it; 0 for a class in no image. Throws a UserError for an invalid mask.
std::vector<float> median_frequency_weights(const MaskedImages& images);
/// Returns for each mask the classes that occur in it.
std::vector<std::vector<int32_t>> classes_of_masks(const MaskedImages& images);

/// Draws a mask in class colors, as RGB; unlabeled pixels are white.
Image colorize(const Image& mask, const std::vector<MaskClass>& classes);
/// Returns the average of an image and its mask's colors; pixels of class 0 and unlabeled pixels are
/// unchanged.
Image overlay(const Image& image, const Image& mask, const std::vector<MaskClass>& classes);

}  // namespace hearth::data
