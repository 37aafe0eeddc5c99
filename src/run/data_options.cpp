#include "run/data_options.h"

namespace hearth::run {

data::LoaderOptions loader_options(const recipe::Recipe& recipe) {
  return {.batch = recipe.train.batch,
          .seed = recipe.seed,
          .shuffle = recipe.data.shuffle,
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
          .exif = exif_of(recipe),
          .skip_bad = data.bad_records == recipe::BadRecords::skip,
          .num_threads = recipe::num_threads(recipe)};
}

data::Exif exif_of(const recipe::Recipe& recipe) {
  return recipe.data.exif == recipe::Exif::ignore ? data::Exif::ignore : data::Exif::apply;
}

}  // namespace hearth::run
