#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/extent.h"
#include "base/file.h"
#include "data/images/image.h"

namespace hearth::data {

class ImageCacheBudget;

/// Options of open_dataset().
struct DatasetOptions {
  /// Value of dataset_kinds(): "shapes", "idx" (MNIST), "cifar10", "folder" (data/class_files.h).
  std::string kind = "shapes";
  fs::path path;
  /// Split to read: "train" or "test".
  std::string split = "train";
  /// Image size and number of channels: images of a folder are resized and converted, shapes are drawn with
  /// them. Datasets idx and cifar10 ignore both.
  Extent image_size = 32;
  int64_t channels = 3;
  /// Shapes: number of generated images, and seed of their random numbers.
  int64_t count = 10000;
  uint64_t seed = 0;
  /// Class names by index; empty: names in the data. A folder must have exactly these classes; the classes of
  /// idx, cifar10 and shapes are renamed to them.
  std::vector<std::string> class_names = {};
  double val_share = 0.1;  ///< folder: fraction held out if there is no test split
  /// Memory budget for caching decoded images of a folder; null: no cache.
  std::shared_ptr<ImageCacheBudget> cache_budget = nullptr;
  Exif exif = Exif::apply;  ///< whether the EXIF orientation of images of a folder is applied
  /// Folder: true if images that cannot be read are skipped (Dataset::notes() lists them).
  bool skip_bad = false;
  int num_threads = 1;  ///< number of threads that search for unreadable images, with skip_bad
};

/// Labeled images by index. Reading is thread-safe. Buffers are reused per thread: after the first images,
/// only libpng and libjpeg allocate memory.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  /// Reads an image as height x width x channels bytes, and its label. Throws a UserError for a damaged
  /// image.
  virtual void read(int64_t index, uint8_t* pixels, int32_t* label) const = 0;
  /// Returns the label of an image if read() would succeed; otherwise throws read()'s UserError. Faster than
  /// read(), because nothing is drawn or resized.
  virtual int32_t check(int64_t index) const;
  /// Returns the label of an image, without reading the image if possible.
  virtual int32_t label(int64_t index) const { return check(index); }
  /// Returns a hash of the image's source data: it changes if the image changes.
  virtual uint64_t content(int64_t index) const;
  /// True if the images are floats (kind "tensors"): then read_floats() replaces read(), and augmentation is
  /// not possible.
  virtual bool holds_floats() const { return false; }
  virtual void read_floats(int64_t, float*, int32_t*) const {}
  /// Returns where an image is stored (such as its path), for messages.
  virtual std::string where(int64_t index) const { return "image " + std::to_string(index); }

  const std::vector<std::string>& class_names() const { return class_names_; }
  /// Sentences about how the split was chosen and about files that are not read.
  const std::vector<std::string>& notes() const { return notes_; }
  Extent image_size() const { return image_size_; }
  int64_t channels() const { return channels_; }

  /// Renames the classes. Throws a UserError if there are fewer names than classes.
  void name_classes(const std::vector<std::string>& names);

 protected:
  std::vector<std::string> class_names_;
  std::vector<std::string> notes_;
  Extent image_size_;
  int64_t channels_ = 0;
};

/// Reads an image of a dataset that does not hold floats. Throws the UserError of Dataset::read().
Image read_image(const Dataset& dataset, int64_t index);

/// Returns the valid values of DatasetOptions::kind.
std::vector<std::string> dataset_kinds();
/// Opens a dataset; throws a UserError with the path and the expected layout on failure.
std::unique_ptr<Dataset> open_dataset(const DatasetOptions& options);

/// Result of reading every image once: images per class, and all errors as "FILE: reason".
struct DatasetCheck {
  std::vector<std::string> class_names;
  std::vector<int64_t> per_class;
  std::vector<std::string> faults;
};
/// Reads every image of a dataset.
DatasetCheck check_dataset(const Dataset& dataset);
/// Opens and reads a dataset; errors from opening (a missing class folder, a wrong header) are
/// added to `faults`.
DatasetCheck check_dataset(const DatasetOptions& options);

}  // namespace hearth::data
