#include <algorithm>

#include "base/error.h"
#include "data/chosen_images.h"
#include "io/run_lock.h"
#include "tasks/diffuse/agreement_classifier.h"
#include "tasks/diffuse/diffusion_data.h"
#include "tasks/diffuse/labeled_latents.h"
#include "tasks/progress_reporter.h"
#include "tasks/stratified_indices.h"

namespace hearth::tasks {
namespace {

/// Gray level of the lines between the images of a grid.
constexpr uint8_t kGap = 64;
/// Timeout in seconds for the lock of the cache folder. Practically unlimited, because another process may
/// take hours to fill the cache.
constexpr double kLockTimeoutSeconds = 1e9;

class LabeledImageData : public DiffusionData {
 public:
  explicit LabeledImageData(const LabeledImagesOptions& options)
      : options_(options),
        train_images_(data::open_dataset(options.train)),
        held_out_images_(data::open_dataset(options.held_out)),
        chosen_(*held_out_images_, stratified_indices(options.val_images, held_out_images_->size())),
        train_(*train_images_, options.flip),
        held_out_(chosen_),
        codec_(class_codec({.classes = numbered(names()),
                            .num_classes = options.num_classes,
                            .channels = train_.channels(),
                            .open_autoencoder = options.space ? options.space->open_decoder : nullptr})) {
    if (std::ssize(names()) > options.num_classes)
      user_error("{2} has {1} classes, but the model has {0}; set \"num_classes\": {3} in model.config",
                 options.num_classes, names().size(), options.train.path.string(), names().size());
    if (!options.space) return;
    const LatentSpace& space = *options.space;
    LabeledLatentsOptions latent_options{.pixels = space.pixels,
                                         .flip = options.flip,
                                         .format = space.format,
                                         .coder = space.hash,
                                         .cache = space.cache};
    train_latents_.emplace(*train_images_, latent_options);
    latent_options.flip = false;
    held_out_latents_.emplace(chosen_, latent_options);
  }

  const data::LatentSource& train() const override {
    if (train_latents_) return *train_latents_;
    return train_;
  }
  const data::LatentSource& held_out() const override {
    if (held_out_latents_) return *held_out_latents_;
    return held_out_;
  }
  std::string describe() const override {
    const Extent size = options_.space ? options_.space->pixels : train_images_->image_size();
    std::string text =
        fmt::format("{} training and {} validation images of {} classes, {}x{} pixels", train_images_->size(),
                    held_out_images_->size(), names().size(), size.width, size.height);
    if (const int64_t missing = num_missing(); missing > 0)
      text += fmt::format("; {} latents are not encoded yet", missing);
    return text;
  }
  std::vector<std::string> prompts() const override { return names(); }
  void show_samples(int64_t count, io::ReportData& page) const override {
    page.strips_title = "Training images and their classes";
    for (const int64_t index : stratified_indices(count, train_images_->size())) {
      const data::Image image = train_latents_ ? train_latents_->image(static_cast<size_t>(index))
                                               : data::read_image(*train_images_, index);
      const auto label = static_cast<size_t>(train_images_->label(index));
      page.strips.push_back({.images = {data::encode_png(image)}, .caption = names()[label]});
    }
  }
  const DiffusionCodec* codec() const override { return codec_.get(); }
  void prepare(std::span<const std::string>, const Say& say) const override {
    if (!options_.space) return;
    const fs::path& cache = options_.space->cache;
    make_folder(cache);
    const io::RunLock lock(cache, kLockTimeoutSeconds);
    const int64_t missing = num_missing();
    if (missing == 0) return;
    say(fmt::format("encoding {} images into {}", missing, cache.string()));
    const std::unique_ptr<encoders::ImageCoder> coder = options_.space->open_encoder();
    ProgressReporter progress(say, "encoding images", missing);
    int64_t count = 0;
    for (const LabeledLatents* latents : {&*train_latents_, &*held_out_latents_})
      latents->make([&](const data::Image& image) { return coder->encode(image); },
                    [&](int64_t) { progress(++count); });
  }
  bool is_prepared(std::span<const std::string>) const override { return num_missing() == 0; }
  std::optional<double> agreement(std::span<const data::Image> images,
                                  std::span<const int32_t> labels) const override {
    const AgreementClassifier classifier(*train_images_, options_.seed, options_.num_threads);
    const std::vector<int32_t> seen = classifier.classes(images);
    int64_t right = 0;
    for (size_t i = 0; i < seen.size(); ++i) right += seen[i] == labels[i] ? 1 : 0;
    return static_cast<double>(right) / static_cast<double>(seen.size());
  }

 private:
  const std::vector<std::string>& names() const { return train_images_->class_names(); }
  int64_t num_missing() const {
    return options_.space ? train_latents_->num_missing() + held_out_latents_->num_missing() : 0;
  }

  LabeledImagesOptions options_;
  std::unique_ptr<data::Dataset> train_images_, held_out_images_;
  data::ChosenImages chosen_;  ///< held-out images that are evaluated
  data::PixelLatents train_, held_out_;
  std::optional<LabeledLatents> train_latents_,
      held_out_latents_;  ///< used instead of train_ and held_out_ with an autoencoder
  std::unique_ptr<DiffusionCodec> codec_;
};

}  // namespace

std::unique_ptr<DiffusionData> labeled_images(const LabeledImagesOptions& options) {
  return std::make_unique<LabeledImageData>(options);
}

data::Image image_grid(std::span<const data::Image> images, int64_t columns) {
  HEARTH_CHECK(!images.empty());
  const data::Image& first = images[0];
  const int64_t rows = (std::ssize(images) + columns - 1) / columns;
  data::Image grid{.height = rows * (first.height + 1) - 1,
                   .width = columns * (first.width + 1) - 1,
                   .channels = first.channels};
  grid.pixels.assign(static_cast<size_t>(grid.height * grid.width * grid.channels), kGap);
  for (int64_t i = 0; i < std::ssize(images); ++i) {
    const data::Image& one = images[static_cast<size_t>(i)];
    HEARTH_CHECK(one.size() == first.size() && one.channels == first.channels);
    const int64_t top = i / columns * (first.height + 1), left = i % columns * (first.width + 1);
    for (int64_t y = 0; y < one.height; ++y) {
      const uint8_t* row = one.pixels.data() + y * one.width * one.channels;
      std::copy(row, row + one.width * one.channels,
                grid.pixels.data() + ((top + y) * grid.width + left) * grid.channels);
    }
  }
  return grid;
}

}  // namespace hearth::tasks
