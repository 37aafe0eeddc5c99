#include "data/masks/outlined_masks.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "data/boxes/boxes.h"
#include "data/boxes/boxes_format.h"
#include "data/image_reader.h"
#include "data/masks/fill_outline.h"

namespace hearth::data {
namespace {

constexpr auto kFormats = std::to_array({BoxFormat::label_studio, BoxFormat::cvat, BoxFormat::labelme});

bool is_background(std::string_view label) {
  const std::string name = lowered(label);
  return name == "background" || name == "_background_";
}

/// Returns the outline of a box.
Outline rectangle(const Box& box) {
  return {.polygons = {{box.x0, box.y0, box.x1, box.y0, box.x1, box.y1, box.x0, box.y1}}};
}

class OutlinedMasks : public MaskedImages {
 public:
  explicit OutlinedMasks(const MaskOptions& options)
      : set_(read_boxes(options.path, options.split,
                        {.allow_outside = options.allow_outside,
                         .keep_outlines = true,
                         .exif = options.exif,
                         .skip_bad = options.skip_bad,
                         .num_classes = std::max<int64_t>(0, options.num_classes - 1)})),
        images_(set_, kMaxImageSide, kMaxImageSide, options.cache_budget) {
    if (set_.images.empty())
      user_error("expected images of the {} split in {}, found none", options.split, options.path.string());
    classes_ = {{"background", palette_color(0)}};
    for (const std::string& name : set_.class_names) {
      const bool is_new = !is_background(name);
      label_of_.push_back(is_new ? static_cast<uint8_t>(classes_.size()) : uint8_t{0});
      if (is_new) classes_.push_back({name, palette_color(std::ssize(classes_))});
      if (std::ssize(classes_) > kMaxMaskClasses)
        user_error("{}: the labels have more than {} classes", options.path.string(), kMaxMaskClasses);
    }
    check_outlines(options.path);
    summarize_notes();
  }

  /// Returns notes about objects whose box is filled because they have no outline, and about classes without
  /// an object.
  std::vector<std::string> decision_notes() const {
    std::vector<std::string> notes;
    int64_t num_boxes = 0, num_objects = 0;
    std::vector<bool> is_used(classes_.size());
    for (const BoxedImage& each : set_.images) {
      num_objects += std::ssize(each.boxes);
      num_boxes += std::ranges::count_if(each.outlines, &Outline::empty);
      for (const Box& box : each.boxes) is_used[label_of_[static_cast<size_t>(box.label)]] = true;
    }
    if (num_boxes > 0)
      notes.push_back(fmt::format("{} of {} training objects have no outline: their boxes are filled",
                                  num_boxes, num_objects));
    for (size_t i = 1; i < classes_.size(); ++i)
      if (!is_used[i])
        notes.push_back(
            fmt::format("warning: no training image has an object of class {}", classes_[i].name));
    return notes;
  }

  int64_t size() const override { return std::ssize(set_.images); }
  std::string where(int64_t index) const override { return outlined(index).file.string(); }

  void read(int64_t index, Image& image, Image& mask) const override {
    expect_readable(index);
    image = *images_.read(index);
    draw(index, image.size(), mask);
  }
  void read_mask(int64_t index, Image& mask) const override {
    expect_readable(index);
    draw(index, {outlined(index).height, outlined(index).width}, mask);
  }

 private:
  const BoxedImage& outlined(int64_t index) const { return set_.images[static_cast<size_t>(index)]; }

  void expect_readable(int64_t index) const {
    if (!outlined(index).fault.empty()) throw UserError(outlined(index).fault);
  }

  /// Draws the mask of an image: the objects in file order, so that a later object covers earlier ones.
  void draw(int64_t index, Extent size, Image& mask) const {
    mask = {.height = size.height, .width = size.width, .channels = 1};
    mask.pixels.assign(static_cast<size_t>(size.num_pixels()), 0);
    const BoxedImage& labels = outlined(index);
    for (size_t i = 0; i < labels.boxes.size(); ++i) {
      const Outline& outline = labels.outlines[i];
      const uint8_t label = label_of_[static_cast<size_t>(labels.boxes[i].label)];
      fill_outline(outline.empty() ? rectangle(labels.boxes[i]) : outline, label, mask);
    }
  }

  /// Sets notes_ to the first few notes on the labels and a note with the number of omitted ones, because a
  /// run prints all of notes_.
  void summarize_notes() {
    constexpr size_t kMaxNotes = 5;
    notes_ = set_.notes;
    if (notes_.size() <= kMaxNotes) return;
    notes_.resize(kMaxNotes);
    notes_.push_back(fmt::format("{} more remarks on the labels", set_.notes.size() - kMaxNotes));
  }

  /// Throws a UserError if no object has an outline although objects have boxes.
  void check_outlines(const fs::path& path) const {
    bool has_boxes = false;
    for (const BoxedImage& each : set_.images) {
      has_boxes = has_boxes || !each.boxes.empty();
      if (std::ranges::any_of(each.outlines, [](const Outline& outline) { return !outline.empty(); })) return;
    }
    if (has_boxes)
      user_error(
          "{}: the labels have boxes and no outlines; use a detector (model.name=yolox_s data.kind=boxes)",
          path.string());
  }

  BoxedImages set_;
  ImageReader images_;
  std::vector<uint8_t> label_of_;  ///< mask label of each class of the labels
};

}  // namespace

bool is_outlined(const MaskOptions& options) {
  const fs::path& path = options.path;
  if (options.kind != "masks" || (fs::is_directory(path) && has_masks(path))) return false;
  if (!find_coco(path).empty() || find_yolo(path)) return true;
  return std::ranges::any_of(kFormats,
                             [&](BoxFormat format) { return !find_label_files(path, format).empty(); });
}

MaskDecision decide_outlined_masks(const MaskOptions& train, const MaskOptions& held_out) {
  const OutlinedMasks training(train);
  const OutlinedMasks held(held_out);
  if (training.classes() != held.classes())
    user_error("{}: the labels of both splits have different classes", train.path.string());
  MaskDecision made;
  for (const MaskClass& one : training.classes()) {
    made.class_numbers.push_back(std::ssize(made.class_names));
    made.class_names.push_back(one.name);
  }
  made.notes = training.decision_notes();
  return made;
}

std::unique_ptr<MaskedImages> open_outlined_masks(const MaskOptions& options) {
  return std::make_unique<OutlinedMasks>(options);
}

}  // namespace hearth::data
