#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/captions/latents.h"
#include "encoders/image_coder.h"
#include "io/report.h"
#include "tasks/diffuse/encoded_images.h"
#include "tasks/diffuse/latent_generator.h"

namespace hearth::tasks {

/// Codec of a diffusion model: converts prompts to conditions, and latents to images.
class DiffusionCodec {
 public:
  virtual ~DiffusionCodec() = default;
  /// Returns the condition of each prompt. Pass all prompts in one call, because every call loads the text
  /// encoders. Throws a UserError if a prompt is not supported (not a class name).
  virtual std::vector<Condition> conditions(std::span<const std::string> prompts) const = 0;
  /// Returns the condition for unconditional predictions: that of the empty text, or the label num_classes.
  virtual Condition no_condition() const = 0;
  /// Returns a warning if prompts in the last call of conditions() were truncated, because they exceed the
  /// token limit of a text encoder; otherwise empty.
  virtual std::string note() const { return ""; }
  /// Decodes latents [channels, height, width] into an image. `size`: height and width of the latents.
  virtual data::Image image(std::span<const float> latents, Extent size) const = 0;
};

/// Function that opens an autoencoder. Destroying the autoencoder frees its memory.
using OpenAutoencoder = std::function<std::unique_ptr<encoders::ImageCoder>()>;

/// A name of a class. A class may have several names.
struct NamedClass {
  std::string name;
  int32_t label = 0;
};
/// Assigns labels 0, 1 and so on to names.
std::vector<NamedClass> numbered(std::span<const std::string> names);

struct ClassCodecOptions {
  std::vector<NamedClass> classes;  ///< names of the classes; if two are equal, the last one counts
  int64_t num_classes = 0;          ///< number of classes of the model
  int64_t channels = 0;             ///< channels of the latents
  OpenAutoencoder
      open_autoencoder;  ///< called before the first image is decoded; empty: the model works on pixels
};
/// Returns a codec for class-conditional models, whose prompts are class names.
std::unique_ptr<DiffusionCodec> class_codec(ClassCodecOptions options);

/// Training and held-out data of a denoiser.
class DiffusionData {
 public:
  virtual ~DiffusionData() = default;
  virtual const data::LatentSource& train() const = 0;
  virtual const data::LatentSource& held_out() const = 0;
  /// Returns the codec; null if there are no encoders, so that no images can be generated.
  virtual const DiffusionCodec* codec() const = 0;
  /// Returns a summary of the data: "60000 training and 10000 validation images of 10 classes".
  virtual std::string describe() const = 0;
  /// Returns warnings about the data, one per line; empty if none.
  virtual std::string warning() const { return ""; }
  using Say = std::function<void(const std::string&)>;
  /// Adds at most `count` training images, spread evenly over the data, to `page`, with their captions or
  /// classes. Images are resized and cropped as in training, but not flipped. Throws a UserError if the data
  /// has only latents.
  virtual void show_samples(int64_t count, io::ReportData& page) const = 0;
  /// Encodes images and prompts and stores them in the cache. Called before the first row is read. May take
  /// long; reports progress with the second argument.
  virtual void prepare(std::span<const std::string> /*prompts*/, const Say&) const {}
  /// True if prepare() has nothing to encode.
  virtual bool is_prepared(std::span<const std::string> /*prompts*/) const { return true; }
  /// Returns the default prompts: all class names, or some captions of the data.
  virtual std::vector<std::string> prompts() const = 0;
  /// Returns the fraction of generated images that show the class of their label, as judged by a classifier;
  /// nullopt for data without classes.
  virtual std::optional<double> agreement(std::span<const data::Image> /*images*/,
                                          std::span<const int32_t> /*labels*/) const {
    return std::nullopt;
  }
};

/// Autoencoder of a class-conditional model, and the cache of its latents.
struct LatentSpace {
  OpenAutoencoder open_encoder;  ///< opens the autoencoder on the training device, for prepare()
  OpenAutoencoder open_decoder;  ///< opens the autoencoder on the CPU, for decoding during training
  uint64_t hash = 0;             ///< hash of the autoencoder's weights
  LatentFormat format;
  Extent pixels;   ///< size that images are resized to; sides are multiples of factor * patch
  fs::path cache;  ///< cache folder of the latents
};

struct LabeledImagesOptions {
  data::DatasetOptions train, held_out;
  int64_t num_classes = 0;  ///< number of classes of the model
  int64_t val_images = 1;   ///< number of held-out images that are evaluated, chosen from all classes
  bool flip = false;
  std::optional<LatentSpace> space;  ///< nullopt: the model works on pixels
  uint64_t seed = 0;                 ///< seed of AgreementClassifier
  int num_threads = 1;
};

/// Opens images that are labeled with classes. Throws a UserError if the data has more classes than the
/// model.
std::unique_ptr<DiffusionData> labeled_images(const LabeledImagesOptions& options);

/// Returns one image with `images`, all of the same size, in a grid of `columns` columns with lines of one
/// pixel between them.
data::Image image_grid(std::span<const data::Image> images, int64_t columns);

}  // namespace hearth::tasks
