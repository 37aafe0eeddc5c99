#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "data/class_files.h"
#include "data/dataset.h"
#include "data/image_cache.h"
#include "data/images/image.h"

namespace hearth::data {
namespace {

class FolderDataset : public Dataset {
 public:
  FolderDataset(const DatasetOptions& options, ClassFiles listing)
      : files_(std::move(listing.files)),
        exif_(options.exif),
        cache_(std::ssize(files_), options.cache_budget) {
    image_size_ = options.image_size;
    channels_ = options.channels;
    class_names_ = std::move(listing.class_names);
    notes_ = std::move(listing.notes);
  }

  int64_t size() const override { return std::ssize(files_); }
  std::string where(int64_t index) const override { return files_[static_cast<size_t>(index)].path.string(); }
  void read(int64_t index, uint8_t* pixels, int32_t* label) const override {
    const LabeledFile& file = files_[static_cast<size_t>(index)];
    *label = file.label;
    if (const auto kept = cache_.find(index)) return write(*kept, pixels);
    const MappedFile mapped(file.path);
    thread_local ImageBuffers buffers;
    const Image& image = read_image(mapped.bytes(), static_cast<int>(channels_), image_size_,
                                    file.path.native(), buffers, exif_);
    write(image, pixels);
    cache_.keep(index, image);
  }
  int32_t check(int64_t index) const override {
    const LabeledFile& file = files_[static_cast<size_t>(index)];
    const MappedFile mapped(file.path);
    decode_image(mapped.bytes(), static_cast<int>(channels_), file.path.native(), exif_);
    return file.label;
  }
  uint64_t content(int64_t index) const override {
    const fs::path& path = files_[static_cast<size_t>(index)].path;
    const MappedFile mapped(path);
    const int orientation =
        exif_ == Exif::ignore ? 1 : read_image_header(mapped.bytes(), path.native()).orientation;
    // Adds the orientation, because it changes the decoded image; for upright images (1) the hash is that of
    // the bytes.
    return hash64(mapped.bytes()) + static_cast<uint64_t>(orientation - 1);
  }
  int32_t label(int64_t index) const override { return files_[static_cast<size_t>(index)].label; }

 private:
  static void write(const Image& image, uint8_t* pixels) {
    std::memcpy(pixels, image.pixels.data(), image.pixels.size());
  }

  std::vector<LabeledFile> files_;
  Exif exif_;
  mutable ImageCache cache_;
};

}  // namespace

std::unique_ptr<Dataset> open_folder(const DatasetOptions& options, std::vector<std::string>& faults) {
  const Extent size = options.image_size;
  if (size.shorter() < 1 || size.longer() > kMaxImageSide)
    user_error("expected an image size from 1 to {}, got {}x{}", kMaxImageSide, size.width, size.height);
  if (options.channels != 1 && options.channels != 3 && options.channels != 4)
    user_error("expected 1 (gray), 3 (RGB) or 4 (RGBA) channels, got {}", options.channels);
  ClassFiles listing = list_class_files({.path = options.path,
                                         .is_training = options.split == "train",
                                         .val_share = options.val_share,
                                         .class_names = options.class_names});
  faults = std::move(listing.faults);
  return std::make_unique<FolderDataset>(options, std::move(listing));
}

std::unique_ptr<Dataset> open_folder(const DatasetOptions& options) {
  std::vector<std::string> faults;
  auto dataset = open_folder(options, faults);
  if (!faults.empty()) throw UserError(faults[0]);
  return dataset;
}

}  // namespace hearth::data
