#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "data/dataset.h"
#include "data/image.h"

namespace hearth::data {
namespace {

bool is_picture(const fs::path& path) {
  std::string ending = path.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return ending == ".jpg" || ending == ".jpeg" || ending == ".png";
}

/// Names in byte order, so that class numbers are the same on every machine.
std::vector<fs::path> sorted_entries(const fs::path& folder, bool folders) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (folders ? entry.is_directory() : entry.is_regular_file() && is_picture(entry.path()))
      paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

fs::path split_folder(const DatasetOptions& options) {
  const std::vector<std::string> names = options.split == "train"
                                             ? std::vector<std::string>{"train"}
                                             : std::vector<std::string>{"test", "val", "valid"};
  for (const std::string& name : names) {
    if (fs::is_directory(options.path / name)) return options.path / name;
  }
  user_error("expected a folder '{}' with a folder per class in {}", names[0], options.path.string());
}

class FolderDataset : public Dataset {
 public:
  explicit FolderDataset(const DatasetOptions& options) {
    image_size_ = options.image_size;
    channels_ = options.channels;
    const fs::path root = split_folder(options);
    for (const fs::path& folder : sorted_entries(root, true)) {
      const std::vector<fs::path> pictures = sorted_entries(folder, false);
      if (pictures.empty())
        user_error("expected JPEG or PNG pictures in the class folder {}, found none", folder.string());
      for (const fs::path& picture : pictures)
        files_.push_back({picture, static_cast<int32_t>(class_names_.size())});
      class_names_.push_back(folder.filename().string());
    }
    if (class_names_.size() < 2)
      user_error("expected at least two class folders in {}, found {}", root.string(), class_names_.size());
  }

  int64_t size() const override { return std::ssize(files_); }
  std::string where(int64_t index) const override { return files_[static_cast<size_t>(index)].path.string(); }
  void read(int64_t index, uint8_t* pixels, int32_t* label) const override {
    const File& file = files_[static_cast<size_t>(index)];
    const MappedFile mapped(file.path);
    const Image image = resize(decode_image(mapped.bytes(), static_cast<int>(channels_), file.path.string()),
                               image_size_, image_size_);
    std::memcpy(pixels, image.pixels.data(), image.pixels.size());
    *label = file.label;
  }

 private:
  struct File {
    fs::path path;
    int32_t label;
  };
  std::vector<File> files_;
};

}  // namespace

std::unique_ptr<Dataset> open_folder(const DatasetOptions& options) {
  return std::make_unique<FolderDataset>(options);
}

}  // namespace hearth::data
