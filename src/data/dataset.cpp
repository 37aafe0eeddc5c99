#include "data/dataset.h"

#include <array>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"

namespace hearth::data {

// Functions that open each kind of dataset; each is in a separate source file.
using Open = std::unique_ptr<Dataset>(const DatasetOptions& options);
Open open_shapes, open_idx, open_cifar10, open_folder;
/// Opens a dataset of class folders. If only some images or classes are wrong, adds the errors to `faults`
/// instead of throwing.
std::unique_ptr<Dataset> open_folder(const DatasetOptions& options, std::vector<std::string>& faults);
/// Returns the dataset without the images that cannot be read, and adds a note that lists them. Decodes all
/// images on `num_threads` threads to find them.
std::unique_ptr<Dataset> without_unreadable(std::unique_ptr<Dataset> all, int num_threads);

namespace {

struct Kind {
  const char* name;
  Open* open;
  bool has_folder = true;    ///< True if data.path must be a folder
  bool reads_files = false;  ///< True if data.path may be a file
  /// Opens the readable part of a dataset and appends errors to the list; null if the kind has only `open`,
  /// which throws the first error.
  std::unique_ptr<Dataset> (*open_with_faults)(const DatasetOptions&, std::vector<std::string>&) = nullptr;
};
/// Table of dataset kinds. To add one, write a source with its open function and add a row here.
constexpr auto kKinds = std::to_array<Kind>({
    {"shapes", open_shapes, false},
    {"idx", open_idx},
    {"cifar10", open_cifar10},
    {"folder", open_folder, true, true, open_folder},
});

const Kind& kind_of(const DatasetOptions& options) {
  for (const Kind& kind : kKinds) {
    if (options.kind == kind.name) return kind;
  }
  user_error("there is no data.kind '{}'{}", options.kind, did_you_mean(options.kind, dataset_kinds()));
}

void check_images(const Dataset& dataset, DatasetCheck& check) {
  check.class_names = dataset.class_names();
  check.per_class.resize(check.class_names.size());
  for (int64_t i = 0; i < dataset.size(); ++i) {
    try {
      ++check.per_class.at(static_cast<size_t>(dataset.check(i)));
    } catch (const UserError& error) {
      check.faults.emplace_back(error.what());
    }
  }
}

void check_options(const DatasetOptions& options, const Kind& kind) {
  if (options.split != "train" && options.split != "test")
    user_error("expected data.split 'train' or 'test', got '{}'", options.split);
  const bool is_file = kind.reads_files && fs::is_regular_file(options.path);
  if (kind.has_folder && !is_file && !fs::is_directory(options.path))
    user_error("expected a folder at data.path, found none at '{}'; set data.path=FOLDER",
               options.path.string());
}

}  // namespace

void Dataset::name_classes(const std::vector<std::string>& names) {
  if (names.size() < class_names_.size())
    user_error("the data has {} classes, but model.class_names has {} names", class_names_.size(),
               names.size());
  class_names_ = names;
}

int32_t Dataset::check(int64_t index) const {
  thread_local std::vector<uint8_t> pixels;
  pixels.resize(static_cast<size_t>(image_size_.num_pixels() * channels_));
  int32_t label = 0;
  read(index, pixels.data(), &label);
  return label;
}

uint64_t Dataset::content(int64_t index) const {
  thread_local std::vector<uint8_t> pixels;
  pixels.resize(static_cast<size_t>(image_size_.num_pixels() * channels_));
  int32_t label = 0;
  read(index, pixels.data(), &label);
  return hash64(std::as_bytes(std::span(pixels)));
}

Image read_image(const Dataset& dataset, int64_t index) {
  const Extent size = dataset.image_size();
  Image image{.height = size.height, .width = size.width, .channels = dataset.channels()};
  image.pixels.resize(static_cast<size_t>(image.height * image.width * image.channels));
  int32_t label = 0;
  dataset.read(index, image.pixels.data(), &label);
  return image;
}

std::vector<std::string> dataset_kinds() {
  std::vector<std::string> names;
  for (const Kind& kind : kKinds) names.emplace_back(kind.name);
  return names;
}

std::unique_ptr<Dataset> open_dataset(const DatasetOptions& options) {
  const Kind& kind = kind_of(options);
  check_options(options, kind);
  auto dataset = kind.open(options);
  if (!options.class_names.empty()) dataset->name_classes(options.class_names);
  if (options.skip_bad && kind.has_folder) return without_unreadable(std::move(dataset), options.num_threads);
  return dataset;
}

DatasetCheck check_dataset(const Dataset& dataset) {
  DatasetCheck check;
  check_images(dataset, check);
  return check;
}

DatasetCheck check_dataset(const DatasetOptions& options) {
  DatasetCheck check;
  try {
    const Kind& kind = kind_of(options);
    check_options(options, kind);
    check_images(kind.open_with_faults != nullptr ? *kind.open_with_faults(options, check.faults)
                                                  : *kind.open(options),
                 check);
  } catch (const UserError& error) {
    check.faults.emplace_back(error.what());
  }
  return check;
}

}  // namespace hearth::data
