#include "tasks/diffuse/captioned_images.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "base/error.h"
#include "base/text.h"
#include "encoders/image_coder.h"
#include "encoders/text_coder.h"
#include "io/run_lock.h"
#include "tasks/diffuse/cached_latents.h"
#include "tasks/diffuse/kohya_latents.h"
#include "tasks/diffuse/latent_sets.h"
#include "tasks/progress_reporter.h"
#include "tasks/stratified_indices.h"

namespace hearth::tasks {
namespace {

/// Max number of captions of the data that are used as default prompts.
constexpr size_t kMaxSuggestedPrompts = 4;
/// Min number of images to hold some out; with fewer, all images are used for both training and evaluation.
constexpr int64_t kMinImagesToSplit = 10;
/// Max number of file names listed in a message.
constexpr size_t kMaxNamed = 3;
/// JPEG quality of the images in show_samples(), from 1 to 100.
constexpr int kShownQuality = 85;
/// Timeout in seconds for the lock of the cache folder. Practically unlimited, because another process may
/// take hours to fill the cache.
constexpr double kLockTimeoutSeconds = 1e9;

/// Reads and writes cached text embeddings.
struct CaptionCache {
  io::LatentCache cache;
  LatentFormat format;
  uint64_t encoders = 0;

  io::CaptionKey key_of(const std::string& caption) const { return caption_key(caption, format, encoders); }
  bool holds(const std::string& caption) const { return cache.holds(key_of(caption)); }
  Condition read(const std::string& caption) const {
    Condition found;
    found.text.resize(static_cast<size_t>(format.num_tokens * format.text_width));
    found.pooled.resize(static_cast<size_t>(format.pooled_width));
    cache.read(key_of(caption), found.text, found.pooled);
    return found;
  }
  void put(const std::string& caption, std::span<const float> text, std::span<const float> pooled) const {
    cache.put(key_of(caption), text, pooled);
  }
};

/// Codec that encodes prompts with the text encoders of a folder. Results are cached in memory, and in a
/// CaptionCache if there is one.
class TextCodec : public DiffusionCodec {
 public:
  explicit TextCodec(TextCodecOptions options, std::optional<CaptionCache> cache = std::nullopt)
      : options_(std::move(options)), cache_(std::move(cache)) {}

  std::vector<Condition> conditions(std::span<const std::string> prompts) const override {
    note_.clear();
    encode_missing(prompts, options_.compute);
    std::vector<Condition> made;
    for (const std::string& prompt : prompts) {
      if (!conditions_.contains(prompt)) conditions_[prompt] = cache_->read(prompt);
      made.push_back(conditions_.at(prompt));
    }
    return made;
  }
  std::string note() const override { return note_; }
  Condition no_condition() const override {
    const std::string empty;
    return conditions(std::span(&empty, 1)).front();
  }
  data::Image image(std::span<const float> latents, Extent size) const override {
    if (!coder_)
      coder_ = std::make_unique<encoders::ImageCoder>(options_.autoencoder, options_.autoencoder_config,
                                                      options_.compute, options_.memory);
    return coder_->decode(latents, size);
  }
  /// Encodes prompts that are not cached yet, then frees the memory of the text encoders, because a run uses
  /// the same few prompts repeatedly.
  void encode_missing(std::span<const std::string> prompts, const encoders::Compute& compute) const {
    if (const std::vector<std::string> found = not_encoded(prompts); !found.empty()) encode(found, compute);
  }
  /// Returns the distinct prompts that are not encoded yet.
  std::vector<std::string> not_encoded(std::span<const std::string> prompts) const {
    std::vector<std::string> not_encoded;
    for (const std::string& prompt : prompts) {
      if (conditions_.contains(prompt) || (cache_ && cache_->holds(prompt))) continue;
      if (std::ranges::find(not_encoded, prompt) == not_encoded.end()) not_encoded.push_back(prompt);
    }
    return not_encoded;
  }

 private:
  void encode(std::span<const std::string> prompts, const encoders::Compute& compute) const {
    encoders::TextCoder coder(options_.model, options_.text_tokens, compute);
    if (const std::string note = coder.truncation_note(prompts); !note.empty()) note_ = note;
    coder.encode(prompts, [&](size_t i, std::span<const float> text, std::span<const float> pooled) {
      if (cache_) return cache_->put(prompts[i], text, pooled);
      Condition& made = conditions_[prompts[i]];
      made.text.assign(text.begin(), text.end());
      made.pooled.assign(pooled.begin(), pooled.end());
    });
  }

  TextCodecOptions options_;
  std::optional<CaptionCache> cache_;
  mutable std::map<std::string, Condition> conditions_;
  mutable std::unique_ptr<encoders::ImageCoder> coder_;
  mutable std::string note_;
};

/// Returns the number of images at the end of the source that are held out. Repeats of an image are held out
/// together. Returns 0 if the data is too small to split.
int64_t num_held_out(const data::LatentSource& all, double val_share) {
  if (val_share <= 0 || all.size() < kMinImagesToSplit) return 0;
  int64_t first =
      all.size() - std::max<int64_t>(1, static_cast<int64_t>(val_share * static_cast<double>(all.size())));
  while (all.is_repeat(first)) --first;
  return first == 0 ? 0 : all.size() - first;
}

/// Training part and held-out part of a source. With few images, both are the full source.
class Split {
 public:
  Split(const data::LatentSource& all, double val_share)
      : num_held_out_(num_held_out(all, val_share)),
        is_split_(num_held_out_ > 0),
        train_(all, 0, all.size() - num_held_out_),
        held_out_(all, is_split_ ? train_.size() : 0, is_split_ ? num_held_out_ : all.size()) {}
  const PartOfLatents& train() const { return train_; }
  const PartOfLatents& held_out() const { return held_out_; }
  std::string describe() const {
    return is_split_ ? fmt::format("{} training and {} validation images with captions", train_.size(),
                                   num_held_out_)
                     : fmt::format("{} training images with captions", train_.size());
  }
  std::string warning() const {
    return is_split_
               ? ""
               : "warning: no image is held out, so the loss at fixed noise is measured on training images";
  }

 private:
  int64_t num_held_out_;
  bool is_split_;
  PartOfLatents train_, held_out_;
};

LatentFormat latent_format(const CaptionedImagesOptions& options, int64_t factor) {
  const models::DenoiserConfig& model = options.format.model;
  return {.channels = model.channels,
          .factor = factor,
          .patch = model.patch,
          .num_tokens = options.format.text_tokens,
          .text_width = model.text_width,
          .pooled_width = model.pooled_width};
}

bool skips_bad(const recipe::Data& data) { return data.bad_records == recipe::BadRecords::skip; }

/// Images and captions of the data folder, and of the folder of class images (prior preservation).
struct Folders {
  std::vector<data::CaptionedImage> train, prior;
};
Folders read_folders(const CaptionedImagesOptions& options) {
  const recipe::Data& data = options.data;
  const recipe::Diffuse& diffuse = options.diffuse;
  const fs::path kohyas = data::regularization_folder(data.path);
  std::error_code ignored;
  if (!diffuse.prior.empty() && !kohyas.empty() && !fs::equivalent(diffuse.prior, kohyas, ignored))
    user_error("there are two folders of class images: diffuse.prior={} and {}; remove one of them",
               diffuse.prior, kohyas.string());
  const auto read = [&](const fs::path& folder) {
    return data::read_captions(folder, diffuse.trigger, data.exif, data.allow_outside, skips_bad(data));
  };
  const fs::path prior = diffuse.prior.empty() ? kohyas : fs::path(diffuse.prior);
  return {.train = read(data.path), .prior = prior.empty() ? decltype(Folders::prior)() : read(prior)};
}

/// Returns the distinct captions of all images.
std::vector<std::string> captions_of(const Folders& folders) {
  std::set<std::string> captions;
  for (const auto* images : {&folders.train, &folders.prior})
    for (const data::CaptionedImage& captioned : *images) captions.insert(captioned.caption);
  return {captions.begin(), captions.end()};
}

/// Properties of the autoencoder and text encoders in a folder. check_encoders() throws if they do not match
/// the denoiser.
struct Encoders {
  EncoderHashes hashes;
  int64_t factor;
  std::string truncation_note;  ///< warning about truncated captions
};
Encoders check_encoders(const CaptionedImagesOptions& options, const Folders& folders) {
  const models::DenoiserConfig& model = options.format.model;
  const encoders::ImageCoder images(options.encoders.autoencoder, options.encoders.autoencoder_config,
                                    options.encoders.compute, 0);
  const encoders::TextCoder text(options.encoders.model, options.format.text_tokens,
                                 options.encoders.compute);
  images.expect_channels(model.channels);
  if (text.text_width() != model.text_width || text.pooled_width() != model.pooled_width)
    user_error(
        "the denoiser expects text embeddings of width {} ({} pooled), but got width {} ({} pooled) from {}; "
        "use the text encoders of the same model",
        model.text_width, model.pooled_width, text.text_width(), text.pooled_width(),
        options.encoders.model.string());
  return {.hashes = {.images = images.hash(), .captions = text.hash()},
          .factor = images.factor(),
          .truncation_note = text.truncation_note(captions_of(folders))};
}

class CaptionedImageData : public DiffusionData {
 public:
  explicit CaptionedImageData(CaptionedImagesOptions options)
      : options_(std::move(options)),
        folders_(read_folders(options_)),
        encoders_(check_encoders(options_, folders_)),
        all_(open(folders_.train)),
        parts_(all_, options_.data.val_share),
        codec_(options_.encoders, CaptionCache{.cache = io::LatentCache(options_.cache),
                                               .format = latent_format(options_, encoders_.factor),
                                               .encoders = encoders_.hashes.captions}) {
    if (!encoders_.truncation_note.empty()) notes_.push_back("warning: " + encoders_.truncation_note);
    note_small(all_);
    if (folders_.prior.empty()) return;
    prior_.emplace(open(folders_.prior));
    note_small(*prior_);
    joined_.emplace(parts_.train(), *prior_, options_.diffuse.prior_weight);
  }

  const data::LatentSource& train() const override {
    if (joined_) return *joined_;
    return parts_.train();
  }
  const data::LatentSource& held_out() const override { return parts_.held_out(); }
  const DiffusionCodec* codec() const override { return &codec_; }
  std::string describe() const override {
    std::string text = parts_.describe() + ": " + data::describe_captions(all_.images());
    if (prior_) text += fmt::format(", and {} class images", prior_->size());
    if (const int64_t missing = all_.num_missing_images(); missing > 0)
      text += fmt::format("; {} are not encoded yet", missing);
    return text;
  }
  std::string warning() const override {
    std::vector<std::string> lines = notes_;
    if (const std::string text = parts_.warning(); !text.empty()) lines.push_back(text);
    return fmt::format("{}", fmt::join(lines, "\n"));
  }
  std::vector<std::string> prompts() const override {
    std::vector<std::string> found;
    for (int64_t i = 0; i < all_.size() && found.size() < kMaxSuggestedPrompts; ++i)
      if (std::ranges::find(found, all_.caption(i)) == found.end()) found.push_back(all_.caption(i));
    return found;
  }
  /// Does not show class images of prior preservation.
  void show_samples(int64_t count, io::ReportData& page) const override {
    page.strips_title = "Training images and their captions";
    const data::LatentSource& images = parts_.train();
    for (const int64_t index : stratified_indices(count, images.size()))
      page.strips.push_back(
          {.images = {data::encode_jpeg(all_.image(index), kShownQuality)}, .caption = all_.caption(index)});
  }
  void prepare(std::span<const std::string> prompts, const Say& say) const override {
    make_folder(options_.cache);
    const io::RunLock lock(options_.cache, kLockTimeoutSeconds);
    prepare(all_, say);
    if (prior_) prepare(*prior_, say);
    codec_.encode_missing(prompts, options_.preparation);
    if (!codec_.note().empty()) say("prompts: " + codec_.note());
  }
  bool is_prepared(std::span<const std::string> prompts) const override {
    const auto has_all = [](const CachedLatents& latents) {
      return latents.num_missing_images() == 0 && latents.num_missing_captions() == 0;
    };
    return has_all(all_) && (!prior_ || has_all(*prior_)) && codec_.not_encoded(prompts).empty();
  }

 private:
  CachedLatents open(std::vector<data::CaptionedImage> images) {
    if (skips_bad(options_.data)) {
      const std::string note = data::remove_unreadable(images, options_.encoders.compute.num_threads);
      if (!note.empty()) notes_.push_back("note: " + note);
    }
    return {std::move(images), data::Buckets(options_.data.image_size.longer()),
            latent_format(options_, encoders_.factor), encoders_.hashes, io::LatentCache(options_.cache)};
  }
  void note_small(const CachedLatents& latents) {
    const std::vector<std::string>& small = latents.small();
    if (small.empty()) return;
    notes_.push_back(
        fmt::format("warning: {} of {} images have a side below {} pixels, half of data.image_size, and are "
                    "enlarged, which blurs them: {}",
                    small.size(), latents.images().size(), options_.data.image_size.longer() / 2,
                    listed(small, kMaxNamed)));
  }
  /// Throws a UserError for images that cannot be decoded, before any image is encoded.
  void expect_readable(const CachedLatents& latents) const {
    const data::ReadCheck check =
        data::check_captioned(latents.images(), options_.encoders.compute.num_threads);
    if (check.faults.empty()) return;
    user_error("{} of {} images cannot be read, the first: {}; set data.bad_records=skip to leave them out",
               check.faults.size(), latents.images().size(), check.faults[0]);
  }
  void prepare(const CachedLatents& latents, const Say& say) const {
    if (const int64_t missing = latents.num_missing_images(); missing > 0) {
      if (!skips_bad(options_.data)) expect_readable(latents);
      say(fmt::format("encoding {} images into {}", missing, options_.cache.string()));
      encoders::ImageCoder coder(options_.encoders.autoencoder, options_.encoders.autoencoder_config,
                                 options_.preparation, options_.encoders.memory);
      latents.encode_latents([&](const data::Image& image) { return coder.encode(image); },
                             ProgressReporter(say, "encoding images", missing));
    }
    if (const int64_t missing = latents.num_missing_captions(); missing > 0) {
      say(fmt::format("encoding {} captions", missing));
      encoders::TextCoder coder(options_.encoders.model, options_.format.text_tokens, options_.preparation);
      latents.encode_text(
          [&](std::span<const std::string> captions, const TakeText& take) { coder.encode(captions, take); },
          ProgressReporter(say, "encoding captions", missing));
    }
  }

  CaptionedImagesOptions options_;
  Folders folders_;
  Encoders encoders_;
  /// Notes and warnings about truncated captions and about images that are left out or enlarged.
  std::vector<std::string> notes_;
  CachedLatents all_;
  Split parts_;
  std::optional<CachedLatents> prior_;
  std::optional<JoinedLatents> joined_;
  TextCodec codec_;
};

class KohyaImageData : public DiffusionData {
 public:
  explicit KohyaImageData(const CaptionedImagesOptions& options)
      : all_(options.data.path, options.data.image_size.longer(), latent_format(options, 8)),
        parts_(all_, options.data.val_share),
        codec_(options.encoders),
        preparation_(options.preparation),
        has_encoders_(path_exists(options.encoders.autoencoder)) {}

  const data::LatentSource& train() const override { return parts_.train(); }
  const data::LatentSource& held_out() const override { return parts_.held_out(); }
  /// Null if there are no encoders. The caches of sd-scripts contain no caption texts, so all prompts are
  /// those of the recipe.
  const DiffusionCodec* codec() const override { return has_encoders_ ? &codec_ : nullptr; }
  std::string describe() const override { return parts_.describe() + ", cached by sd-scripts"; }
  std::string warning() const override { return parts_.warning(); }
  std::vector<std::string> prompts() const override { return {}; }
  [[noreturn]] void show_samples(int64_t, io::ReportData&) const override {
    user_error(
        "the caches of sd-scripts contain latents, not images, which could be shown; remove --preview");
  }
  void prepare(std::span<const std::string> prompts, const Say&) const override {
    codec_.encode_missing(requested(prompts), preparation_);
  }
  bool is_prepared(std::span<const std::string> prompts) const override {
    return codec_.not_encoded(requested(prompts)).empty();
  }

 private:
  /// Returns the prompts to encode: `prompts` and the empty prompt, which guidance needs; none if there are
  /// no encoders.
  std::vector<std::string> requested(std::span<const std::string> prompts) const {
    if (prompts.empty() || !has_encoders_) return {};
    std::vector<std::string> texts(prompts.begin(), prompts.end());
    texts.emplace_back();
    return texts;
  }

  KohyaLatents all_;
  Split parts_;
  TextCodec codec_;
  encoders::Compute preparation_;
  bool has_encoders_;
};

}  // namespace

std::unique_ptr<DiffusionCodec> text_codec(const TextCodecOptions& options) {
  return std::make_unique<TextCodec>(options);
}

std::unique_ptr<DiffusionData> captioned_images(const CaptionedImagesOptions& options) {
  return std::make_unique<CaptionedImageData>(options);
}

std::unique_ptr<DiffusionData> kohya_images(const CaptionedImagesOptions& options) {
  if (const fs::path found = data::regularization_folder(options.data.path); !found.empty())
    user_error("{} holds class images, which data.kind=kohya does not support; set data.path={}",
               found.string(), (options.data.path / "img").string());
  return std::make_unique<KohyaImageData>(options);
}

}  // namespace hearth::tasks
