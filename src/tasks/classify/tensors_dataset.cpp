#include "tasks/classify/tensors_dataset.h"

#include <algorithm>

#include "base/error.h"
#include "io/safetensors.h"
#include "recipe/recipe.h"

namespace hearth::tasks {
namespace {

constexpr int64_t kMaxClasses = 100000;

class TensorsDataset : public data::Dataset {
 public:
  TensorsDataset(const fs::path& path, int64_t num_classes) : file_(path) {
    images_ = file_.find("images");
    labels_ = file_.find("labels");
    const bool shaped = images_ != nullptr && labels_ != nullptr && images_->shape.rank() == 4 &&
                        images_->dtype == DType::f32 && labels_->shape == Shape{images_->shape[0]} &&
                        !is_floating(labels_->dtype);
    if (!shaped) user_error("{}: expected images f32 [N, C, H, W] and integer labels [N]", path.string());
    channels_ = images_->shape[1];
    image_size_ = {images_->shape[2], images_->shape[3]};
    if (num_classes == 0) num_classes = 1 + largest_label();
    check_labels(num_classes, path);
    for (int64_t i = 0; i < num_classes; ++i) class_names_.push_back(std::to_string(i));
  }

  int64_t size() const override { return images_->shape[0]; }
  bool holds_floats() const override { return true; }
  void read(int64_t, uint8_t*, int32_t*) const override { internal_error("tensors are read as floats"); }
  void read_floats(int64_t index, float* out, int32_t* label) const override {
    const int64_t plane = image_size_.num_pixels();
    for (int64_t i = 0; i < plane * channels_; ++i) {
      const int64_t from = index * plane * channels_ + i % channels_ * plane + i / channels_;
      out[i] = static_cast<float>(load_element(DType::f32, images_->bytes.data(), from));
    }
    *label = this->label(index);
  }
  int32_t label(int64_t index) const override {
    return static_cast<int32_t>(load_element(labels_->dtype, labels_->bytes.data(), index));
  }

 private:
  int64_t largest_label() const {
    double largest = 0;
    for (int64_t i = 0; i < size(); ++i)
      largest = std::max(largest, load_element(labels_->dtype, labels_->bytes.data(), i));
    return std::min(static_cast<int64_t>(largest), kMaxClasses - 1);
  }
  void check_labels(int64_t num_classes, const fs::path& path) const {
    for (int64_t i = 0; i < size(); ++i) {
      const double label = load_element(labels_->dtype, labels_->bytes.data(), i);
      if (label >= 0 && label < static_cast<double>(num_classes)) continue;
      user_error("{}: expected labels from 0 to {}, got {} for image {}; remove model.num_classes",
                 path.string(), num_classes - 1, label, i);
    }
  }

  io::SafetensorsFile file_;
  const io::TensorView* images_ = nullptr;
  const io::TensorView* labels_ = nullptr;
};

}  // namespace

std::vector<std::string> image_kinds() {
  std::vector<std::string> kinds = data::dataset_kinds();
  kinds.emplace_back(name_of(recipe::DataKind::tensors));
  return kinds;
}

std::unique_ptr<data::Dataset> open_any_dataset(const data::DatasetOptions& options, int64_t num_classes) {
  if (recipe::data_kind(options.kind) == recipe::DataKind::tensors) {
    auto dataset = std::make_unique<TensorsDataset>(options.path, num_classes);
    if (!options.class_names.empty()) dataset->name_classes(options.class_names);
    return dataset;
  }
  return data::open_dataset(options);
}

}  // namespace hearth::tasks
