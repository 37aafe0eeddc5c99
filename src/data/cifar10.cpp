#include "base/error.h"
#include "data/dataset.h"

namespace hearth::data {
namespace {

constexpr int64_t kSide = 32;
constexpr int64_t kPlane = kSide * kSide;
constexpr int64_t kRecord = 1 + 3 * kPlane;

/// The CIFAR-10 binary format: records of one label byte and three color planes, in up to five mapped files.
class Cifar10 : public Dataset {
 public:
  explicit Cifar10(const DatasetOptions& options) {
    image_size_ = kSide;
    channels_ = 3;
    class_names_ = {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"};
    // The public archive unpacks into a folder of this name.
    const fs::path unpacked = options.path / "cifar-10-batches-bin";
    const fs::path folder = fs::is_directory(unpacked) ? unpacked : options.path;
    if (options.split != "train") {
      add(folder / "test_batch.bin");
      return;
    }
    for (int i = 1; i <= 5; ++i) add(folder / ("data_batch_" + std::to_string(i) + ".bin"));
  }

  int64_t size() const override { return size_; }
  void read(int64_t index, uint8_t* pixels, int32_t* label) const override {
    size_t file = 0;
    while (index >= counts_[file]) index -= counts_[file++];
    check_label(file, index);
    const std::byte* record = files_[file].bytes().data() + index * kRecord;
    *label = static_cast<int32_t>(record[0]);
    for (int64_t i = 0; i < kPlane; ++i) {
      for (int64_t c = 0; c < 3; ++c) pixels[3 * i + c] = static_cast<uint8_t>(record[1 + c * kPlane + i]);
    }
  }

 private:
  void add(const fs::path& path) {
    if (!fs::exists(path)) user_error("expected the file {}, found none", path.string());
    files_.emplace_back(path);
    paths_.push_back(path);
    const auto bytes = files_.back().bytes();
    if (bytes.empty() || std::ssize(bytes) % kRecord != 0) {
      user_error("{}: expected whole records of {} bytes, found {} bytes", path.string(), kRecord,
                 bytes.size());
    }
    counts_.push_back(std::ssize(bytes) / kRecord);
    size_ += counts_.back();
  }

  void check_label(size_t file, int64_t record) const {
    const auto label = static_cast<int>(files_[file].bytes()[static_cast<size_t>(record * kRecord)]);
    if (label > 9)
      user_error("{}: expected a label from 0 to 9 in record {}, found {}", paths_[file].string(), record,
                 label);
  }

  std::vector<MappedFile> files_;
  std::vector<fs::path> paths_;
  std::vector<int64_t> counts_;
  int64_t size_ = 0;
};

}  // namespace

std::unique_ptr<Dataset> open_cifar10(const DatasetOptions& options) {
  return std::make_unique<Cifar10>(options);
}

}  // namespace hearth::data
