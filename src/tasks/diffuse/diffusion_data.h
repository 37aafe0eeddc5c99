#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/captions/latents.h"
#include "encoders/image_coder.h"
#include "tasks/diffuse/encoded_images.h"
#include "tasks/diffuse/latent_generator.h"

namespace hearth::tasks {

/// Converts prompts to conditions and latents to images.
class DiffusionCodec {
 public:
  virtual ~DiffusionCodec() = default;
  /// Returns the condition of each prompt. Pass all prompts in one call: text encoders are loaded layer by
  /// layer. UserError if a prompt has no condition.
  virtual std::vector<Condition> conditions(std::span<const std::string> prompts) const = 0;
  /// Returns the unconditional input: the empty text, or the extra class.
  virtual Condition no_condition() const = 0;
  /// Returns a warning about parts of the last prompts that were truncated for the text encoders; empty if
  /// none.
  virtual std::string note() const { return ""; }
  /// Decodes latents [channels, height, width] into an image. `size`: of the latents.
  virtual data::Image image(std::span<const float> latents, Extent size) const = 0;
};

/// Function that opens an autoencoder. Destroying the autoencoder frees its memory.
using OpenAutoencoder = std::function<std::unique_ptr<encoders::ImageCoder>()>;

/// A name of a class; a class may have several.
struct NamedClass {
  std::string name;
  int32_t label = 0;
};
/// Returns names with labels 0, 1 and so on.
std::vector<NamedClass> numbered(std::span<const std::string> names);

struct ClassCodecOptions {
  std::vector<NamedClass> classes;   ///< the last of equal names counts
  int64_t num_classes = 0;           ///< of the model
  int64_t channels = 0;              ///< of latents
  OpenAutoencoder open_autoencoder;  ///< called before the first image is decoded; empty: latents are pixels
};
/// Returns a translator whose prompts are class names.
std::unique_ptr<DiffusionCodec> class_codec(ClassCodecOptions options);

/// Training and held-out data of a denoiser.
class DiffusionData {
 public:
  virtual ~DiffusionData() = default;
  virtual const data::LatentSource& train() const = 0;
  virtual const data::LatentSource& held_out() const = 0;
  /// Returns the translator of prompts; null if there are no encoders, so that no images can be generated.
  virtual const DiffusionCodec* codec() const = 0;
  /// Returns a summary of the data: "60000 training and 10000 validation images of 10 classes".
  virtual std::string describe() const = 0;
  /// Returns warnings about the data, one per line; empty if none.
  virtual std::string warning() const { return ""; }
  using Say = std::function<void(const std::string&)>;
  /// Encodes images and prompts into the cache. Called before the first row is read; may take long; reports
  /// progress with the second argument.
  virtual void prepare(std::span<const std::string> /*prompts*/, const Say&) const {}
  /// True if prepare() has nothing to encode.
  virtual bool is_prepared(std::span<const std::string> /*prompts*/) const { return true; }
  /// Returns the default prompts: all class names, or some captions of the data.
  virtual std::vector<std::string> prompts() const = 0;
  /// Returns the share of generated images that show the class of their label; nothing for data without
  /// classes.
  virtual std::optional<double> agreement(std::span<const data::Image> /*images*/,
                                          std::span<const int32_t> /*labels*/) const {
    return std::nullopt;
  }
};

/// Latents of an autoencoder, in a cache.
struct LatentSpace {
  OpenAutoencoder open_encoder;  ///< on the training device, for prepare()
  OpenAutoencoder open_decoder;  ///< on the CPU, during training
  uint64_t hash = 0;             ///< of the autoencoder's weights
  LatentFormat format;
  Extent pixels;   ///< size that images are resized to; sides are multiples of factor * patch
  fs::path cache;  ///< cache folder of the latents
};

struct LabeledImagesOptions {
  data::DatasetOptions train, held_out;
  int64_t num_classes = 0;  ///< of the model
  int64_t val_images = 1;   ///< number of held-out images that are evaluated, from all classes
  bool flip = false;
  std::optional<LatentSpace> space;  ///< empty: latents are pixels
  uint64_t seed = 0;                 ///< seed and threads of AgreementClassifier
  int num_threads = 1;
};

/// Opens images with classes. UserError if the data has more classes than the model.
std::unique_ptr<DiffusionData> labeled_images(const LabeledImagesOptions& options);

/// Returns a grid of images of one size, `columns` per row, one pixel apart.
data::Image image_grid(std::span<const data::Image> images, int64_t columns);

}  // namespace hearth::tasks
