#include <algorithm>
#include <cstring>
#include <set>

#include "base/error.h"
#include "base/hash.h"
#include "data/dataset.h"
#include "data/image.h"
#include "data/picture_cache.h"
#include "data/picture_files.h"

namespace hearth::data {
namespace {

struct File {
  fs::path path;
  int32_t label = 0;
};

/// What lies under a split's folder. Faults are sentences that name the folder.
struct Listing {
  std::vector<std::string> class_names;
  std::vector<File> files;
  std::vector<std::string> faults;
};

/// Names in byte order, so that class numbers are the same on every machine; hidden ones are left out.
std::vector<std::string> sorted_names(const fs::path& folder, bool folders) {
  std::vector<std::string> names;
  std::error_code code;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code)) {
    const std::string name = at->path().filename().string();
    std::error_code ignored;
    const bool wanted =
        folders ? at->is_directory(ignored) : at->is_regular_file(ignored) && is_image_file(name);
    if (wanted && name[0] != '.') names.push_back(name);
  }
  if (code) user_error("cannot list the folder {}: {}", folder.string(), code.message());
  std::sort(names.begin(), names.end());
  return names;
}

fs::path split_folder(const DatasetOptions& options) {
  const std::vector<std::string> names = options.split == "train"
                                             ? std::vector<std::string>{"train"}
                                             : std::vector<std::string>{"test", "val", "valid"};
  for (const std::string& name : names) {
    if (fs::is_directory(options.path / name)) return options.path / name;
  }
  user_error("expected a folder '{}' with a folder per class in {}, found none", names[0],
             options.path.string());
}

/// The classes are those of the training split, so that labels mean the same in both.
std::vector<std::string> find_classes(const DatasetOptions& options, const fs::path& root) {
  const fs::path train = options.path / "train";
  return sorted_names(fs::is_directory(train) ? train : root, true);
}

void list_class(const fs::path& folder, Listing& listing) {
  if (!fs::is_directory(folder)) {
    listing.faults.push_back(fmt::format(
        "expected a folder for the class '{}' at {}, found none; the classes are the folders of 'train'",
        folder.filename().string(), folder.string()));
    return;
  }
  const std::vector<std::string> names = sorted_names(folder, false);
  if (names.empty()) {
    listing.faults.push_back(fmt::format("expected images ({}) in the class folder {}, found none",
                                         kImageFormats, folder.string()));
  }
  const auto label = static_cast<int32_t>(
      std::find(listing.class_names.begin(), listing.class_names.end(), folder.filename().string()) -
      listing.class_names.begin());
  for (const std::string& name : names) listing.files.push_back({folder / name, label});
}

Listing list_split(const DatasetOptions& options) {
  const fs::path root = split_folder(options);
  Listing listing{.class_names = find_classes(options, root)};
  const auto& classes = listing.class_names;
  if (classes.size() < 2) {
    listing.faults.push_back(
        fmt::format("expected at least two class folders in {}, found {}", root.string(), classes.size()));
  }
  for (const std::string& name : classes) list_class(root / name, listing);
  for (const std::string& name : sorted_names(root, true)) {
    if (std::binary_search(classes.begin(), classes.end(), name)) continue;
    listing.faults.push_back(fmt::format(
        "expected only classes that 'train' has in {}, found the folder '{}'", root.string(), name));
  }
  return listing;
}

class FolderDataset : public Dataset {
 public:
  FolderDataset(const DatasetOptions& options, Listing listing)
      : files_(std::move(listing.files)), exif_(options.exif), cache_(std::ssize(files_), options.keep) {
    image_size_ = options.image_size;
    channels_ = options.channels;
    class_names_ = std::move(listing.class_names);
    std::set<fs::path> folders;
    for (const File& file : files_) folders.insert(file.path.parent_path());
    if (std::string note = describe_unread(folders); !note.empty()) notes_.push_back(std::move(note));
  }

  int64_t size() const override { return std::ssize(files_); }
  std::string where(int64_t index) const override { return files_[static_cast<size_t>(index)].path.string(); }
  void read(int64_t index, uint8_t* pixels, int32_t* label) const override {
    const File& file = files_[static_cast<size_t>(index)];
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
    const File& file = files_[static_cast<size_t>(index)];
    const MappedFile mapped(file.path);
    decode_image(mapped.bytes(), static_cast<int>(channels_), file.path.native(), exif_);
    return file.label;
  }
  uint64_t content(int64_t index) const override {
    const fs::path& path = files_[static_cast<size_t>(index)].path;
    const MappedFile mapped(path);
    const int orientation =
        exif_ == Exif::ignore ? 1 : read_image_header(mapped.bytes(), path.native()).orientation;
    // An upright file keeps the hash of its bytes.
    return hash64(mapped.bytes()) + static_cast<uint64_t>(orientation - 1);
  }
  int32_t label(int64_t index) const override { return files_[static_cast<size_t>(index)].label; }

 private:
  static void write(const Image& image, uint8_t* pixels) {
    std::memcpy(pixels, image.pixels.data(), image.pixels.size());
  }

  std::vector<File> files_;
  Exif exif_;
  mutable PictureCache cache_;
};

}  // namespace

std::unique_ptr<Dataset> open_folder(const DatasetOptions& options, std::vector<std::string>& faults) {
  const Extent size = options.image_size;
  if (size.shorter() < 1 || size.longer() > kMaxImageSide)
    user_error("expected an image size from 1 to {}, got {}x{}", kMaxImageSide, size.width, size.height);
  if (options.channels != 1 && options.channels != 3 && options.channels != 4)
    user_error("expected 1 (gray), 3 (RGB) or 4 (RGBA) channels, got {}", options.channels);
  Listing listing = list_split(options);
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
