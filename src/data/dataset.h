#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/extent.h"
#include "base/file.h"
#include "data/images/image.h"

namespace hearth::data {

class PictureBudget;

/// Which labeled images to open.
struct DatasetOptions {
  /// One of dataset_kinds(): "shapes", "idx" (MNIST), "cifar10", "folder" (data/class_files.h).
  std::string kind = "shapes";
  fs::path path;
  /// "train" or "test".
  std::string split = "train";
  /// Size and channels that images of a folder are brought to and shapes are drawn in; idx and cifar10 keep
  /// their own.
  Extent image_size = 32;
  int64_t channels = 3;
  /// shapes: how many images, and which.
  int64_t count = 10000;
  uint64_t seed = 0;
  /// Class names by index; empty: names in the data. A folder must have exactly these classes; the classes of
  /// idx, cifar10 and shapes are renamed to them.
  std::vector<std::string> class_names = {};
  double val_share = 0.1;  ///< folder: fraction held out if there is no test split
  /// For images of a folder that are decoded once and kept; null: none is.
  std::shared_ptr<PictureBudget> keep = nullptr;
  Exif exif = Exif::apply;  ///< of images of a folder
  bool skip_bad = false;    ///< folder: leave out images that cannot be read (Dataset::notes names them)
  int num_threads = 1;      ///< threads that search for unreadable images
};

/// Labeled images by index. Reading is thread-safe and, after a thread's first image files, allocates
/// nothing but what libpng and libjpeg do.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  /// Writes height x width x channels bytes and the label. UserError for a damaged image.
  virtual void read(int64_t index, uint8_t* pixels, int32_t* label) const = 0;
  /// The label of an image that read() could read, or its UserError, sooner: nothing is drawn or resized.
  virtual int32_t check(int64_t index) const;
  /// The label alone, where it is known without the image.
  virtual int32_t label(int64_t index) const { return check(index); }
  /// A hash of what read() makes an image of: it differs where the image does.
  virtual uint64_t content(int64_t index) const;
  /// Images that are floats already (kind "tensors"): read_floats is used instead of read, and nothing is
  /// augmented.
  virtual bool holds_floats() const { return false; }
  virtual void read_floats(int64_t, float*, int32_t*) const {}
  /// Where an image comes from, for messages.
  virtual std::string where(int64_t index) const { return "image " + std::to_string(index); }

  const std::vector<std::string>& class_names() const { return class_names_; }
  /// Sentences on the chosen split and on files that are not read.
  const std::vector<std::string>& notes() const { return notes_; }
  Extent image_size() const { return image_size_; }
  int64_t channels() const { return channels_; }

  /// Renames the classes. UserError if there are fewer names than classes.
  void name_classes(const std::vector<std::string>& names);

 protected:
  std::vector<std::string> class_names_;
  std::vector<std::string> notes_;
  Extent image_size_;
  int64_t channels_ = 0;
};

/// What DatasetOptions::kind may be.
std::vector<std::string> dataset_kinds();
/// Opens a dataset; UserError says what was expected where.
std::unique_ptr<Dataset> open_dataset(const DatasetOptions& options);

/// What reading every image once found: how many there are per class, and each fault as "FILE: reason".
struct DatasetCheck {
  std::vector<std::string> class_names;
  std::vector<int64_t> per_class;
  std::vector<std::string> faults;
};
DatasetCheck check_dataset(const Dataset& dataset);
/// Opens, then checks; what keeps it from opening (a missing class folder, a lying header) is a fault too.
DatasetCheck check_dataset(const DatasetOptions& options);

}  // namespace hearth::data
