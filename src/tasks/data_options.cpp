#include "tasks/data_options.h"

#include <charconv>

#include "base/error.h"

namespace hearth::tasks {
namespace {

/// Converts data.unlabeled to data::MaskOptions::unlabeled: auto, none or a pixel value.
int64_t unlabeled_number(const std::string& text) {
  if (text == "auto") return data::kUnlabeledAuto;
  if (text == "none") return data::kUnlabeledNone;
  int64_t number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0 || number > 255)
    user_error("data.unlabeled is '{}'; set it to auto, none or a number from 0 to 255", text);
  return number;
}

}  // namespace

data::LoaderOptions loader_options(const recipe::Recipe& recipe) {
  return {.batch = recipe.train.batch,
          .seed = recipe.seed,
          .shuffle = recipe.data.shuffle,
          .min_batch = recipe.data.drop_last == recipe::DropLast::yes ? recipe.train.batch : 1,
          .num_threads = static_cast<int>(recipe.data.threads)};
}

data::DatasetOptions dataset_options(const recipe::Recipe& recipe, const std::string& split) {
  const recipe::Data& data = recipe.data;
  return {.kind = data.kind,
          .path = data.path,
          .split = split,
          .image_size = data.image_size,
          .channels = data.channels,
          .count = split == "test" ? data.val_count : data.count,
          .seed = recipe.seed,
          .class_names = recipe.model.class_names,
          .val_share = data.val_share,
          .exif = recipe.data.exif,
          .skip_bad = data.bad_records == recipe::BadRecords::skip,
          .num_threads = recipe::num_threads(recipe)};
}

data::MaskOptions mask_options(const recipe::Recipe& recipe, const std::string& split) {
  const recipe::Data& data = recipe.data;
  return {.kind = data.kind,
          .path = data.path,
          .split = split,
          .image_size = data.image_size,
          .count = split == "test" ? data.val_count : data.count,
          .seed = recipe.seed,
          .num_classes = recipe.model.num_classes,
          .classes = data.classes,
          .unlabeled = unlabeled_number(data.unlabeled),
          .class_numbers = data.class_numbers,
          .exif = recipe.data.exif,
          .allow_outside = data.allow_outside,
          .skip_bad = data.bad_records == recipe::BadRecords::skip,
          .num_threads = recipe::num_threads(recipe)};
}

}  // namespace hearth::tasks
