#include "encoders/image_coder.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/foreign.h"
#include "base/hash.h"
#include "base/run_files.h"
#include "engine/memory.h"
#include "hub/weights.h"

namespace hearth::encoders {
namespace {

/// Min and max side of a tile, and the difference between the sides that are tried, in latents.
constexpr int64_t kSmallestTile = 8, kLargestTile = 128, kTileStep = 8;

constexpr std::string_view kAttention = ".attentions.";
constexpr std::pair<std::string_view, std::string_view> kOldNames[] = {
    {".query.", ".to_q."}, {".key.", ".to_k."}, {".value.", ".to_v."}, {".proj_attn.", ".to_out.0."}};

/// Tiles of equal length that cover an axis and overlap, with weights for linear blending: linear ramps where
/// tiles overlap. The weights of all tiles at a pixel sum to 1.
struct TiledAxis {
  TiledAxis(int64_t length, int64_t tile, int64_t factor);

  std::vector<int64_t> starts;              ///< start of each tile along the axis, in latents
  std::vector<std::vector<float>> weights;  ///< blending weight of each pixel of each tile
};

TiledAxis::TiledAxis(int64_t length, int64_t tile, int64_t factor) {
  // Adjacent tiles overlap by a quarter of their length.
  const int64_t overlap = tile / 4, step = tile - overlap, num_pixels = tile * factor;
  const int64_t count = std::max<int64_t>(1, (length - overlap + step - 1) / step);
  std::vector<float> sums(static_cast<size_t>(length * factor));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t start = count == 1 ? 0 : i * (length - tile) / (count - 1);
    std::vector<float> rising(static_cast<size_t>(num_pixels), 1.0F);
    for (int64_t p = 0; p < num_pixels; ++p) {
      const auto ramp = [&](int64_t from_edge) {
        return std::min(1.0F, (static_cast<float>(from_edge) + 0.5F) / static_cast<float>(overlap * factor));
      };
      float& weight = rising[static_cast<size_t>(p)];
      if (start > 0) weight *= ramp(p);
      if (start + tile < length) weight *= ramp(num_pixels - 1 - p);
      sums[static_cast<size_t>(start * factor + p)] += weight;
    }
    starts.push_back(start);
    weights.push_back(std::move(rising));
  }
  for (size_t i = 0; i < starts.size(); ++i) {
    for (size_t p = 0; p < weights[i].size(); ++p)
      weights[i][p] /= sums[static_cast<size_t>(starts[i] * factor) + p];
  }
}

data::Image to_image(std::span<const float> pixels, Extent size) {
  data::Image image{.height = size.height, .width = size.width, .channels = 3};
  image.pixels.reserve(pixels.size());
  for (const float value : pixels) {
    const float level = std::round((value + 1) * 127.5F);
    image.pixels.push_back(static_cast<uint8_t>(std::clamp(level, 0.0F, 255.0F)));
  }
  return image;
}

/// Adds a tile, multiplied by its row and column weights, to an RGB image. `to`: the image's value at the
/// upper left pixel of the tile; `width`: of the image, in pixels.
void add_tile(std::span<const float> tile, std::span<const float> rows, std::span<const float> columns,
              float* to, int64_t width) {
  const float* from = tile.data();
  for (size_t y = 0; y < rows.size(); ++y, to += 3 * width) {
    for (size_t i = 0; i < 3 * columns.size(); ++i) to[i] += rows[y] * columns[i / 3] * *from++;
  }
}

/// Opens the weights of an autoencoder. Renames the attention weights of files from before 2023 to diffusers'
/// current names (kOldNames).
io::WeightFiles open_autoencoder(const fs::path& folder) {
  fs::path file = folder / "diffusion_pytorch_model.safetensors";
  if (const fs::path other = folder / "diffusion_pytorch_model.bin"; !path_exists(file) && path_exists(other))
    file = other;
  if (!path_exists(file)) {
    refuse_unsupported_weights(folder);
    user_error("{}: the weights of the autoencoder are missing; use a folder in diffusers' layout",
               file.string());
  }
  io::WeightFiles files(file);
  std::vector<io::TensorView> tensors = files.tensors();
  bool is_old = false;
  for (io::TensorView& tensor : tensors) {
    for (const auto& [old_name, name] : kOldNames) {
      const size_t at = tensor.name.rfind(old_name);
      if (at == tensor.name.npos || tensor.name.find(kAttention) == tensor.name.npos) continue;
      tensor.name.replace(at, old_name.size(), name);
      is_old = true;
    }
  }
  if (is_old) files.show(std::move(tensors), {});
  return files;
}

}  // namespace

ImageCoder::ImageCoder(const fs::path& vae_folder, const std::optional<models::AutoencoderConfig>& config,
                       Compute compute, int64_t memory_budget)
    : config_(config ? *config : models::read_autoencoder_config(vae_folder / kModelConfig)),
      files_(open_autoencoder(vae_folder)),
      compute_(std::move(compute)),
      budget_(memory_budget),
      normalizations_(
          static_cast<size_t>(4 * config_.channels),
          {.shift = static_cast<float>(config_.shift), .scale = static_cast<float>(config_.scale)}) {
  if (config_.has_statistics) read_statistics();
}

void ImageCoder::expect_channels(int64_t channels) const {
  if (this->channels() == channels) return;
  user_error("{2}: the autoencoder has {1} channels, but the denoiser expects {0}", channels,
             this->channels(), files_.path().parent_path().string());
}

uint64_t ImageCoder::hash() const {
  return hash64(std::as_bytes(std::span(normalizations_)), io::fingerprint(files_));
}

void ImageCoder::read_statistics() {
  const auto statistic = [&](const char* name) {
    const io::TensorView* found = files_.find(name);
    const Shape shape = {4 * config_.channels};
    if (found == nullptr || found->shape != shape || !is_floating(found->dtype) ||
        dtype_bytes(found->dtype) < 2) {
      user_error("{}: there is no tensor '{}' of shape {}; download the folder again", files_.path().string(),
                 name, to_string(shape));
    }
    return hub::floats_of(*found, 0, shape.num_elements());
  };
  const std::vector<float> mean = statistic("bn.running_mean"), variance = statistic("bn.running_var");
  for (size_t i = 0; i < normalizations_.size(); ++i) {
    const double deviation = std::sqrt(static_cast<double>(variance[i]) + config_.statistics_eps);
    normalizations_[i] = {.shift = mean[i], .scale = static_cast<float>(1 / deviation)};
  }
}

ModelPart::Graph ImageCoder::grow_encoder(nn::Builder& builder, Extent size) const {
  const ir::ValueId source =
      builder.input("picture", {.dtype = DType::f32, .shape = {1, size.height, size.width, 3}});
  return {.inputs = {source}, .outputs = {models::build_image_encoder(builder, config_, source)}};
}

ModelPart::Graph ImageCoder::grow_decoder(nn::Builder& builder, Extent size) const {
  const ir::ValueId latents = builder.input(
      "latents", {.dtype = DType::f32, .shape = {1, size.height, size.width, config_.channels}});
  return {.inputs = {latents}, .outputs = {models::build_image_decoder(builder, config_, latents)}};
}

ModelPart& ImageCoder::encoder(Extent pixels) {
  if (!encoder_ || encoder_->size != pixels) {
    encoder_.reset();
    const auto grow = [this, pixels](nn::Builder& builder) { return grow_encoder(builder, pixels); };
    const auto open = [&](const Compute& compute) {
      encoder_.emplace(SizedPart{.size = pixels, .part = ModelPart(grow, compute)});
    };
    try {
      open(compute_);
    } catch (const engine::DoesNotFit&) {
      open({.num_threads = compute_.num_threads, .winograd = compute_.winograd});
    }
    encoder_->part.load(files_, "");
  }
  return encoder_->part;
}

std::vector<float> ImageCoder::encode(const data::Image& source) {
  const int64_t multiple = config_.side_multiple();
  if (source.height % multiple != 0 || source.width % multiple != 0 || source.size().shorter() == 0) {
    user_error("the image has {1} x {2} pixels, but its sides must be multiples of {0}", multiple,
               source.width, source.height);
  }
  const data::Image rgb = data::convert(source, 3);
  std::vector<float> pixels(rgb.pixels.size() + engine::kInputSlack);
  std::ranges::transform(rgb.pixels, pixels.begin(),
                         [](uint8_t level) { return static_cast<float>(level) / 127.5F - 1; });
  const std::span<const float> moments = encoder(source.size()).run({{{"picture", pixels.data()}}, 1});
  const int64_t height = source.height / factor(), width = source.width / factor();
  std::vector<float> latents;
  latents.reserve(static_cast<size_t>(channels() * height * width));
  for (int64_t c = 0; c < channels(); ++c) {
    for (int64_t y = 0; y < height; ++y) {
      for (int64_t x = 0; x < width; ++x) {
        const Normalization& normalization = this->normalization(c, y, x);
        const float mean = moments[static_cast<size_t>((y * width + x) * 2 * channels() + c)];
        latents.push_back((mean - normalization.shift) * normalization.scale);
      }
    }
  }
  return latents;
}

std::optional<ModelPart> ImageCoder::decoder_within_budget(Extent tile) const {
  const auto grow = [this, tile](nn::Builder& builder) { return grow_decoder(builder, tile); };
  // Checks a lower bound of the memory first, because it is cheaper to compute than the packed size below.
  if (budget_ > 0 && ModelPart::needed_bytes(grow, compute_) > budget_) return std::nullopt;
  try {
    ModelPart part(grow, compute_);
    if (budget_ > 0 && part.memory_bytes() > budget_) return std::nullopt;
    return part;
  } catch (const engine::DoesNotFit&) {
    return std::nullopt;
  }
}

void ImageCoder::open_decoder(Extent latents) {
  if (decoder_ && decoded_ == latents) return;
  decoder_.reset();
  Extent tile = latents;
  std::optional<ModelPart> part = decoder_within_budget(tile);
  const int64_t max_side = std::min(kLargestTile, (latents.longer() - 1) / kTileStep * kTileStep);
  for (int64_t side = max_side; !part && side >= kSmallestTile; side -= kTileStep) {
    tile = {std::min(side, latents.height), std::min(side, latents.width)};
    part = decoder_within_budget(tile);
  }
  if (!part && budget_ == 0) {
    user_error("the GPU has too little free memory to decode {0} x {0} latents; try device=cpu",
               kSmallestTile);
  }
  if (!part) {
    user_error("the memory budget of {1} bytes is too small to decode {0} x {0} latents; raise it",
               kSmallestTile, budget_);
  }
  decoder_.emplace(SizedPart{.size = tile, .part = std::move(*part)});
  decoder_->part.load(files_, "");
  decoded_ = latents;
}

Extent ImageCoder::tile_of(Extent latents) {
  open_decoder(latents);
  return decoder_->size;
}

void ImageCoder::read_tile(std::span<const float> latents, Extent size, TileStart start, Extent tile,
                           std::vector<float>& in) const {
  float* to = in.data();
  for (int64_t y = start.y; y < start.y + tile.height; ++y) {
    for (int64_t x = start.x; x < start.x + tile.width; ++x) {
      for (int64_t c = 0; c < channels(); ++c) {
        const Normalization& normalization = this->normalization(c, y, x);
        const float latent = latents[static_cast<size_t>((c * size.height + y) * size.width + x)];
        *to++ = latent / normalization.scale + normalization.shift;
      }
    }
  }
}

data::Image ImageCoder::decode(std::span<const float> latents, Extent size) {
  HEARTH_CHECK(std::ssize(latents) == channels() * size.num_pixels());
  const Extent tile = tile_of(size), whole = {size.height * factor(), size.width * factor()};
  const TiledAxis rows(size.height, tile.height, factor()), columns(size.width, tile.width, factor());
  std::vector<float> in(static_cast<size_t>(channels() * tile.num_pixels() + engine::kInputSlack));
  std::vector<float> sum(static_cast<size_t>(3 * whole.num_pixels()));
  for (size_t i = 0; i < rows.starts.size(); ++i) {
    for (size_t j = 0; j < columns.starts.size(); ++j) {
      read_tile(latents, size, {rows.starts[i], columns.starts[j]}, tile, in);
      add_tile(decoder_->part.run({{{"latents", in.data()}}, 1}), rows.weights[i], columns.weights[j],
               sum.data() + 3 * factor() * (rows.starts[i] * whole.width + columns.starts[j]), whole.width);
    }
  }
  return to_image(sum, whole);
}

}  // namespace hearth::encoders
